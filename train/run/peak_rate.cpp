#include "train/run/peak_rate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/number_format.h"
#include "base/replace_file.h"
#include "kernels/cuda_facts.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

constexpr double kSteady = 0.1;  // the most that windows may differ
constexpr size_t kAveraged = 8;  // over which a device's rate is averaged, where the host is ahead of it

std::string peak_path(const std::string& directory) { return directory + "/peak.json"; }

PeakMachine machine_of(const RunConfig& config, const Mesh& mesh, const Device& device) {
  return {.device = name_of_device(device),
          .dtype = precision_of(config.kernels),
          .threads = device.place() == Place::cuda ? 1 : device.threads(),
          .ranks = mesh.all().size()};
}

}  // namespace

std::string name_of_device(const Device& device) { return device.place() == Place::cuda ? cuda_facts().device : device.cpu().name; }

std::string precision_of(const KernelsConfig& config) {
  return std::string(name_of(config.dtype)) + (config.matmul == MatmulDtype::fp8 ? " with products in fp8" : "");
}

PeakRate::PeakRate(PeakMachine machine, const SteadyRate& measured)
    : machine_(std::move(machine)),
      flops_per_second_(measured.spread <= kSteady ? 1e9 * measured.best : 0),
      spread_(measured.spread) {}

std::string PeakRate::describe() const {
  if (known()) return "peak product rate: " + human_si(flops_per_second_) + "FLOP/s";
  if (spread_ == 0) return "peak product rate unknown, so no MFU is reported";
  return "peak product rate unknown: " + std::to_string(ProductTrial::kWindows) + " windows differ by " + fixed(100 * spread_, 0) +
         " %, so no MFU is reported";
}

// In the time of `kept` steps that followed each other, the device has computed at least kept - ahead of them.
double PeakRate::use(double flops, double seconds, int64_t ahead) {
  if (!known()) return std::numeric_limits<double>::quiet_NaN();
  const size_t kept = ahead > 0 ? kAveraged : 1;
  recent_.push_back(seconds);
  if (recent_.size() > kept) recent_.pop_front();
  const double time = std::accumulate(recent_.begin(), recent_.end(), 0.0);
  if (recent_.size() == kept && time > 0)
    flops_per_second_ = std::max(flops_per_second_, flops * static_cast<double>(static_cast<int64_t>(kept) - ahead) / time);
  return std::min(flops / seconds / flops_per_second_, 1.0);
}

std::string PeakRate::to_json() const {
  const Json out{{"device", machine_.device},
                 {"dtype", machine_.dtype},
                 {"threads", machine_.threads},
                 {"ranks", machine_.ranks},
                 {"flops_per_second", flops_per_second_}};
  return out.dump({.indent = 1}) + "\n";
}

std::optional<PeakRate> PeakRate::from_json(const std::string& json, const PeakMachine& machine) {
  const Json in = Json::parse_or_null(json);
  const auto is = [&](const char* key, const Json& value) { return in.contains(key) && in[key] == value; };
  if (!is("device", machine.device) || !is("dtype", machine.dtype) || !is("threads", machine.threads) ||
      !is("ranks", machine.ranks))
    return std::nullopt;
  const Json* rate = in.find("flops_per_second");
  if (rate == nullptr || !rate->is_number() || !(rate->get<double>() > 0)) return std::nullopt;
  PeakRate peak;
  peak.machine_ = machine;
  peak.flops_per_second_ = rate->get<double>();
  return peak;
}

PeakRate find_peak(const RunConfig& config, const Plan& plan, const Mesh& mesh, Device& device, const std::string& directory) {
  const PeakMachine machine = machine_of(config, mesh, device);
  std::optional<PeakRate> kept;
  if (mesh.first()) kept = PeakRate::from_json(text_of_file(peak_path(directory)), machine);
  if (largest(mesh.all(), kept ? 1 : 0) == 1) return kept.value_or(PeakRate());
  return {machine, steady_product_rate(device, dtype_of(config.kernels.dtype), plan.products)};
}

void keep_peak(const PeakRate& peak, const std::string& directory) {
  if (peak.known()) (void)replace_file(peak_path(directory), peak.to_json());
}

}  // namespace trireme
