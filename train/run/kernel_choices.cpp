#include "train/run/kernel_choices.h"

#include <cmath>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/replace_file.h"
#include "kernels/cuda_facts.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

std::string path_in(const std::string& directory) { return directory + "/kernels.json"; }

std::string note_of(const ChosenProducts& chosen, double seconds) {
  std::string note = text("products: ", chosen.tried, " of ", chosen.choices.size(), " tried in ", std::round(10 * seconds) / 10,
                          " s, ", std::round(1000 * chosen.gained) / 10, " % faster than their library's advice");
  if (chosen.apart > 0) note += text("; ", chosen.apart, " fused ones are faster as two ops");
  if (chosen.wrong > 0) note += text("; ", chosen.wrong, " algorithms were left out for other results");
  return note;
}

// Products and attention of this rank, of which `kept` says some already.
KernelChoices choose_mine(const RunConfig& config, const Plan& plan, Device& device, const KernelChoices& kept,
                          const AttentionTimer& timer, std::vector<std::string>& notes) {
  KernelChoices mine;
  const AttentionKernels wanted = config.kernels.attention;
  if (config.kernels.autotune) {
    const auto begin = Clock::now();
    const ChosenProducts products = choose_products(device, dtype_of(config.kernels.dtype), plan.products, kept.products);
    mine.products = products.choices;
    const double seconds = seconds_since(begin);
    if (products.tried > 0) notes.push_back(note_of(products, seconds));
    if (wanted == AttentionKernels::automatic) mine.attention = kept.attention;
  }
  std::vector<AttentionShape> open;
  for (const AttentionShape& problem : plan.attention)
    if (!mine.attention.contains(problem.words())) open.push_back(problem);
  const bool tries = config.kernels.autotune || wanted != AttentionKernels::automatic;
  const ChosenAttention attention = choose_attention(device, tries ? wanted : AttentionKernels::ours, open, timer);
  mine.attention.insert(attention.choices.begin(), attention.choices.end());
  notes.insert(notes.end(), attention.reasons.begin(), attention.reasons.end());
  if (plan.attention.empty() && wanted == AttentionKernels::cudnn)
    notes.emplace_back(
        "kernels.attention = cudnn: ours all the same; cuDNN's are for kernels.dtype = bf16 with parallel.numerics = fast");
  return mine;
}

}  // namespace

std::string to_json(const KernelChoices& choices) {
  Json out;
  out["machine"] = choices.machine;
  out["products"] = choices.products;
  out["attention"] = choices.attention;
  return out.dump({.indent = 1}) + "\n";
}

KernelChoices kernel_choices(const std::string& json) {
  const auto in = Json::parse_or_null(json);
  KernelChoices choices;
  if (!in.is_object()) return choices;
  choices.machine = in.value("machine", "");
  const auto read = [&](const char* key, std::map<std::string, std::string>& table) {
    const auto found = in.find(key);
    if (found == nullptr || !found->is_object()) return;
    for (const auto& [words, choice] : found->members())
      if (choice.is_string()) table[words] = choice;
  };
  read("products", choices.products), read("attention", choices.attention);
  return choices;
}

ChosenKernels choose_kernels(const RunConfig& config, const Plan& plan, const Mesh& mesh, Device& device,
                             const ChoiceFacts& facts) {
  if (device.place() != Place::cuda || config.parallel.exact()) return {};
  ChosenKernels chosen;
  const std::string machine = cuda_facts().device + ", " + product_library() + ", " + fused_attention_facts().verdict;
  KernelChoices kept = kernel_choices(broadcast(mesh.all(), mesh.first() ? text_of_file(path_in(facts.directory)) : ""));
  if (!kept.machine.empty() && kept.machine != machine) {
    chosen.notes.emplace_back(
        "kernels.json is of another GPU or library than this one: all is tried anew, and last bits may differ");
    kept = {};
  }

  // Ranks of different stages have different shapes; of equal ones the first rank's choice is everyone's.
  const AttentionTimer timer = [&](Device& on, const AttentionShape& shape, bool fused) {
    return time_attention(on, shape, fused, facts.document);
  };
  KernelChoices all = choose_mine(config, plan, device, kept, timer, chosen.notes);
  const std::vector<std::string> ranks = gather(mesh.all(), to_json(all));
  for (const std::string& rank : ranks) {
    KernelChoices theirs = kernel_choices(rank);
    all.products.merge(theirs.products), all.attention.merge(theirs.attention);
  }
  all.products.merge(kept.products), all.attention.merge(kept.attention);  // of another mesh of this run
  all.machine = machine;
  chosen.json = broadcast(mesh.all(), to_json(all));
  all = kernel_choices(chosen.json);
  if (config.kernels.autotune && mesh.all().size() > 1)  // another rank may have chosen otherwise
    choose_products(device, dtype_of(config.kernels.dtype), plan.products, all.products);
  device.attention() = all.attention;
  return chosen;
}

void keep_choices(const ChosenKernels& chosen, const std::string& directory) {
  if (chosen.json.empty()) return;
  if (!replace_file_durably(path_in(directory), chosen.json)) throw unwritable(path_in(directory));
}

}  // namespace trireme
