// The first step of each model in configs/, with one layer: its real width, heads, ffn, masks and vocabulary.
// The GPU's loss, norm and every gradient are those of the CPU.
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/philox.h"
#include "kernels/copy.h"
#include "kernels/tune/product_trial.h"
#include "test/catch.h"
#include "test/reference/place.h"
#include "train/step/plan.h"
#include "train/step/step.h"

namespace trireme {
namespace {

constexpr int64_t kTokens = 72;  // not a multiple of the attention kernels' tiles
constexpr int64_t kSecond = 37;  // where the second document begins

// A model of configs/, as one of so many ranks of tensor parallelism has it, with one part of its vocabulary.
struct Shipped {
  const char* name;
  int64_t ranks, parts;
};

std::string path_of(const Shipped& shipped) { return TRIREME_SOURCE "/configs/" + std::string(shipped.name) + ".yaml"; }

RunConfig first_step(const Shipped& shipped, DeviceChoice device) {
  RunConfig config = read_config(path_of(shipped), {}, Purpose::plan);
  ModelConfig& model = config.model;
  model.layers = 1, model.context = kTokens;
  model.heads /= shipped.ranks, model.kv_heads /= shipped.ranks, model.ffn /= shipped.ranks, model.vocab /= shipped.parts;
  config.train.batch = config.train.microbatch = 1, config.train.warmup = 0;
  config.kernels.device = device;
  config.resolve();
  return config;
}

// One row of two documents.
struct Row {
  std::vector<int32_t> tokens, targets, positions, starts;
  explicit Row(int64_t vocab) {
    for (int64_t i = 0; i < kTokens; ++i) {
      tokens.push_back(static_cast<int32_t>(philox64(41, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
      targets.push_back(static_cast<int32_t>(philox64(42, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
      positions.push_back(static_cast<int32_t>(i < kSecond ? i : i - kSecond));
      starts.push_back(static_cast<int32_t>(i < kSecond ? 0 : kSecond));
    }
    tokens[0] = static_cast<int32_t>(vocab - 1), targets[1] = static_cast<int32_t>(vocab - 1);
  }
  Batch batch() { return {tensor(tokens), tensor(targets), tensor(positions), tensor(starts), kTokens}; }

 private:
  static Tensor tensor(std::vector<int32_t>& ids) { return Tensor(ids.data(), Dtype::i32, Place::cpu, {1, kTokens}); }
};

struct FirstStep {
  StepResult result;
  std::map<std::string, std::vector<float>> gradients;  // as Adam's first moments have them
};

FirstStep step_of(const Shipped& shipped, Place place) {
  const RunConfig config = first_step(shipped, place == Place::cpu ? DeviceChoice::cpu : DeviceChoice::cuda);
  const Mesh one;
  const Plan plan = make_plan(config, one);
  Device device(place, read_cpu_facts());
  if (place == Place::cuda)
    for (const ProductShape& shape : plan.products)
      if (shape.fused()) ProductTrial(device, dtype_of(config.kernels.dtype), shape).results();
  TrainState run(config, one, device, plan.sizes);
  run.optimizer.initialise(device.compute(), config.model.init_std, config.model.layers);
  Row row(config.model.vocab);
  FirstStep first{train_step(run, row.batch(), 0), {}};
  for (const TensorSlice& slice : run.optimizer.slices()) {
    if (!slice.name.starts_with("adam_m/")) continue;
    std::vector<float>& values = first.gradients[slice.name];
    values.resize(static_cast<size_t>(slice.local.size()));
    copy(device.compute(), Tensor(values.data(), Dtype::f32, Place::cpu, {slice.local.size()}),
         slice.local.view({slice.local.size()}));
  }
  device.compute().finish();
  return first;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    norm += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / norm);
}

void check(const Shipped& shipped) {
  const FirstStep cpu = step_of(shipped, Place::cpu), gpu = step_of(shipped, Place::cuda);
  CHECK(gpu.result.loss == Approx(cpu.result.loss).epsilon(1e-3));
  CHECK(gpu.result.grad_norm == Approx(cpu.result.grad_norm).epsilon(5e-3));
  REQUIRE(gpu.gradients.size() == cpu.gradients.size());
  for (const auto& [name, values] : cpu.gradients) {
    if (name.ends_with("k_bias")) continue;  // softmax does not see it: its gradient is rounding alone
    INFO(name);
    CHECK(distance(gpu.gradients.at(name), values) < 0.02);
  }
}

const Shipped kSmall[] = {{"quickstart", 1, 1}, {"shakespeare-char", 1, 1}, {"gpt2-124m", 1, 1}};
// Parts of those that do not fit into 16 GiB.
const Shipped kLarge[] = {{"gpt2-355m", 1, 1},  {"gpt2-774m", 1, 1},  {"gpt2-1558m", 1, 1},
                          {"qwen3-0.6b", 1, 1}, {"llama3-1b", 1, 1},  {"llama3-3b", 1, 8},
                          {"llama3-8b", 1, 8},  {"llama3-70b", 8, 8}, {"llama3-405b", 8, 64}};

}  // namespace

TEST_CASE("the first step of models as shipped has the CPU's loss, norm and gradients", "[unsanitized]") {
  for (const Shipped& shipped : kSmall) DYNAMIC_SECTION(shipped.name) {
      check(shipped);
    }
}

TEST_CASE("the first step of all models as shipped has the CPU's loss, norm and gradients", "[.][soak][unsanitized]") {
  std::set<std::string> files, known;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE "/configs"))
    if (entry.path().extension() == ".yaml") files.insert(entry.path().stem());
  for (const Shipped& shipped : kSmall) known.insert(shipped.name);
  for (const Shipped& shipped : kLarge) known.insert(shipped.name);
  CHECK(files == known);
  for (const Shipped& shipped : kLarge) DYNAMIC_SECTION(shipped.name) {
      check(shipped);
    }
}

}  // namespace trireme
