#include "train/run/announcement.h"

#include "base/number_format.h"
#include "train/run/peak_rate.h"
#include "train/run/sources.h"

namespace trireme {

namespace {

std::string words_of(const Device& device, const KernelsConfig& config) {
  const std::string name = name_of_device(device) + ", ", dtype = precision_of(config);
  if (device.place() == Place::cuda) return name + dtype;
  return name + std::to_string(device.threads()) + " threads, " + dtype + ", bf16 products: " + device.cpu().bf16_path();
}

std::string words_of(const Mesh& mesh) {
  std::string words = text(mesh.all().size(), " ranks: ");
  for (const Comm& axis : mesh.axes()) words += text(&axis == mesh.axes().data() ? "" : ", ", axis.axis(), " ", axis.size());
  const int64_t copies = mesh.copies();
  return copies > 1 && copies < mesh.replicas() ? words + std::string(text(", ", copies, " copies of the state")) : words;
}

}  // namespace

void announce(const Announcement& a, RunLog& log) {
  const auto& [config, mesh, device, plan, mixture, peak, step] = a;
  const std::string parameters = human_count(static_cast<double>(plan.parameters));
  const std::string place = words_of(device, config.kernels);
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  const std::string memory =
      bytes(plan.device_bytes()) + (plan.pinned > 0 ? ", " + bytes(plan.pinned) + " pinned on the host" : "");
  const std::string data =
      human_count(static_cast<double>(mixture.tokens())) + " tokens in " + std::to_string(mixture.samples()) + " samples";
  log.facts({{"model", std::string(name_of(config.model.family)) + ", " + parameters + " parameters"},
             {"device", place},
             {"mesh", words_of(mesh)},
             {"memory", memory},
             {"data", data},
             {"tokens a step", std::to_string(plan.tokens)},
             {"MFU", peak > 0 ? "(6 FLOPs per parameter in products and token + causal attention) / time / peak product rate, " +
                                    human_si(peak) + "FLOP/s at the start"
                              : "not reported: the peak product rate could not be measured"}});
  log.note(config.train.name + ": " + parameters + " parameters, " + memory + ", " + data);
  for (const std::string& line : describe_sources(config, mixture)) log.note(line);
  log.note(place + (peak > 0 ? ", products at " + human_si(peak) + "FLOP/s" : ""));
  for (const std::string& note : config.notes) log.note(note);
  if (step > 0) log.note("resumed after step " + std::to_string(step));
}

}  // namespace trireme
