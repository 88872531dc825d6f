#include "train/kernel_choices.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kernels/cuda_facts.h"
#include "parallel/agree.h"
#include "train/replace_file.h"

namespace trireme {
namespace {

std::string path_in(const std::string& directory) { return directory + "/kernels.json"; }

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string note_of(const ChosenProducts& chosen, bool moved, double seconds) {
  std::string note;
  if (moved)
    note = "kernels.json is of another GPU or library than this one: products are tried anew, and the last bits may differ; ";
  if (chosen.tried == 0) return note;
  return note +
         std::string(text("products: ", chosen.tried, " of ", chosen.choices.size(), " tried in ", std::round(10 * seconds) / 10,
                          " s, ", std::round(1000 * chosen.gained) / 10, " % faster than their library's advice"));
}

}  // namespace

std::string to_json(const KernelChoices& choices) {
  nlohmann::ordered_json out;
  out["machine"] = choices.machine;
  out["products"] = choices.products;
  return out.dump(1) + "\n";
}

KernelChoices kernel_choices(const std::string& json) {
  const auto in = nlohmann::json::parse(json, nullptr, false);
  KernelChoices choices;
  if (!in.is_object()) return choices;
  choices.machine = in.value("machine", "");
  if (const auto products = in.find("products"); products != in.end() && products->is_object())
    for (const auto& [words, algorithm] : products->items())
      if (algorithm.is_string()) choices.products[words] = algorithm;
  return choices;
}

ChosenKernels choose_kernels(const RunConfig& config, const Plan& plan, const Mesh& mesh, Device& device,
                             const std::string& directory) {
  if (device.place() != Place::cuda || !config.kernels.autotune || config.parallel.exact()) return {};
  const auto begin = std::chrono::steady_clock::now();
  const Dtype dtype = dtype_of(config.kernels.dtype);
  const std::string machine = cuda_facts().device + ", " + product_library();
  KernelChoices kept = kernel_choices(broadcast(mesh.all(), mesh.first() ? read(path_in(directory)) : ""));
  const bool moved = !kept.products.empty() && kept.machine != machine;
  if (moved) kept.products.clear();
  const ChosenProducts mine = choose_products(device, dtype, plan.products, kept.products);

  // Ranks of different stages have different shapes; of equal ones the first rank's choice is everyone's.
  KernelChoices all{.machine = machine, .products = kept.products};
  for (const std::string& rank : gather(mesh.all(), to_json({.products = mine.choices})))
    all.products.merge(kernel_choices(rank).products);
  const std::string json = broadcast(mesh.all(), to_json(all));
  choose_products(device, dtype, plan.products, kernel_choices(json).products);
  return {.json = json,
          .note = note_of(mine, moved, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count())};
}

void keep_choices(const ChosenKernels& chosen, const std::string& directory) {
  if (chosen.json.empty()) return;
  if (!replace_file_durably(path_in(directory), chosen.json)) throw Error(text("cannot write ", path_in(directory)));
}

}  // namespace trireme
