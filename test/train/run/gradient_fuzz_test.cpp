// Gradients of random models on random meshes against one rank's, and resumes between the meshes.
//
// With train.beta1 = 0 the first moment is the step's gradient, and with a learning rate of 1e-30
// the weights stay. A model's meshes continue one run: each leaves its first step out, so that the
// state it has read is saved again, and then makes a step.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/json.h"
#include "checkpoint/reader.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/run/random_mesh.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// A variable of the environment, as a number or a path: TRIREME_FUZZ_SEED (first seed),
// TRIREME_FUZZ_MODELS (number of models), TRIREME_FUZZ_PROGRAM (another build's program).
std::string asked(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

constexpr uint64_t kMeshes = 5;  // of a model

const Settings kFrozen{"train.lr=1e-30",     "train.warmup=0",         "train.schedule=constant",
                       "train.beta1=0",      "train.clip=0",           "train.decay=0",
                       "train.eval_every=0", "train.eval_sequences=1", "train.leave_out=1,3,5,7,9",
                       "checkpoint.every=1", "checkpoint.keep=20",     "train.hang_after=0"};

// Differences in a case, as fractions: of a tensor's largest gradient, of the norm, of the loss.
struct Found {
  double gradient = 0, norm = 0, loss = 0;
  std::string tensor{};   // of the largest difference
  std::string problem{};  // "": none
};

class Chain {
 public:
  Chain(const Workplace& place, uint64_t seed)
      : place_(place), config_(place.scratch / "config.yaml"), model_(random_model(config_, seed)) {}

  const RandomModel& model() const { return model_; }
  RandomMesh mesh(uint64_t number) const { return random_mesh(config_, model_, number); }

  // The run of one rank, with which the others are compared.
  std::string train_alone() { return train({"parallel.dp=1"}, "one", 2 * kMeshes, 1); }
  // Mesh `number` of the chain, after those before it.
  Found train_on(const RandomMesh& mesh, uint64_t number) {
    const uint64_t step = 2 * number + 2;
    Found found;
    found.problem = train(mesh.settings, "chain", step, mesh.ranks);
    if (found.problem.empty()) found.problem = state_differs(number);
    if (found.problem.empty()) compare_gradients(found, step);
    if (found.problem.empty()) compare_metrics(found, step);
    return found;
  }
  const std::string& command() const { return command_; }

 private:
  std::string train(const Settings& settings, const std::string& name, uint64_t steps, int ranks);
  std::string directory(const std::string& name, uint64_t step) const {
    const std::string digits = std::to_string(step);
    return place_.scratch / ("runs/" + name + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits);
  }
  std::string state_differs(uint64_t number) const;
  void compare_gradients(Found& found, uint64_t step) const;
  void compare_metrics(Found& found, uint64_t step) const;

  const Workplace& place_;
  std::string config_;
  RandomModel model_;
  std::string command_;
};

std::string Chain::train(const Settings& settings, const std::string& name, uint64_t steps, int ranks) {
  Settings all = model_.settings;
  for (const Settings& more : {settings, kFrozen, Settings{"train.name=" + name, "train.steps=" + std::to_string(steps)}})
    all.insert(all.end(), more.begin(), more.end());
  const std::vector<std::string> words = Workplace::arguments(all);
  command_ = ranks > 1 ? "mpirun --oversubscribe -n " + std::to_string(ranks) + " trireme" : "trireme";
  for (const std::string& word : words) command_ += " " + word;
  const Ended ended = Process(place_.scratch.path(), words, ranks, asked("TRIREME_FUZZ_PROGRAM", TRIREME_BUILD "/trireme")).wait();
  return ended.code == 0 ? "" : "exit code " + std::to_string(ended.code) + ": " + ended.err;
}

// The state after the step that was left out: the last mesh's, or one rank's initial state.
std::string Chain::state_differs(uint64_t number) const {
  const CheckpointReader before(number > 0 ? directory("chain", 2 * number) : directory("one", 1));
  const CheckpointReader after(directory("chain", 2 * number + 1));
  std::map<std::string, uint64_t> digests;
  for (const TensorEntry& tensor : before.manifest().tensors) digests[tensor.name] = tensor.digest;
  if (digests.size() != after.manifest().tensors.size()) return "the resumed state has other tensors";
  for (const TensorEntry& tensor : after.manifest().tensors)
    if (!digests.contains(tensor.name) || digests[tensor.name] != tensor.digest) return "resumed with another " + tensor.name;
  return "";
}

std::vector<float> read_tensor(const CheckpointReader& checkpoint, const TensorEntry& tensor) {
  int64_t size = 1;
  for (const int64_t n : tensor.shape) size *= n;
  std::vector<float> elements(static_cast<size_t>(size));
  const Tensor flat(elements.data(), Dtype::f32, Place::cpu, {size});
  checkpoint.read(tensor.name, tensor.shape.size() == 1 ? flat : flat.view({tensor.shape[0], tensor.shape[1]}));
  return elements;
}

double largest(const std::vector<float>& x) {
  double most = 0;
  for (const float each : x) most = std::max(most, std::abs(static_cast<double>(each)));
  return most;
}

// A bias's gradient is a sum that may cancel, as that of GPT-2's keys does wholly: its rounding
// errors are of the size of the addends, which the model's largest gradient bounds.
void Chain::compare_gradients(Found& found, uint64_t step) const {
  const CheckpointReader one(directory("one", step)), many(directory("chain", step));
  std::map<std::string, std::vector<float>> gradients;
  double most = 0;
  for (const TensorEntry& tensor : one.manifest().tensors) {
    if (!tensor.name.starts_with("adam_m/")) continue;
    gradients[tensor.name] = read_tensor(one, tensor);
    most = std::max(most, largest(gradients[tensor.name]));
  }
  if (!(most > 0)) found.problem = "one rank's gradients are all zero";
  for (const TensorEntry& tensor : many.manifest().tensors) {
    if (!gradients.contains(tensor.name)) continue;
    const std::vector<float>&a = gradients[tensor.name], b = read_tensor(many, tensor);
    double difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double each = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      difference = each <= difference ? difference : each;  // a NaN is larger than every number
    }
    const double scale = std::max(largest(a), tensor.shape.size() == 1 ? most / 100 : 0), part = difference / scale;
    if (difference > 0 && !(part <= found.gradient)) found.gradient = part, found.tensor = tensor.name;
    if (!(difference <= (model_.invariant ? 0 : 1e-4 * scale)))
      found.problem += tensor.name + " differs by " + std::string(text(part)) + " of its largest element; ";
  }
}

void Chain::compare_metrics(Found& found, uint64_t step) const {
  const auto line = [&](const std::string& name) {
    for (const Json& metrics : place_.metrics(name))
      if (metrics.contains("loss") && metrics.at("step").get<uint64_t>() == step) return metrics;
    return Json{};
  };
  const Json one = line("one"), many = line("chain");
  const auto difference = [&](const char* key) {
    const double a = one.at(key), b = many.at(key);
    return std::abs(a - b) / std::abs(a);
  };
  found.loss = difference("loss"), found.norm = difference("grad_norm");
  const double most = model_.invariant ? 0 : 1e-5;
  if (!(found.loss <= most)) found.problem += "the loss differs by " + std::string(text(found.loss));
  if (!(found.norm <= most)) found.problem += "the gradient norm differs by " + std::string(text(found.norm));
}

// Counts and distributions over all cases.
struct Totals {
  int64_t cases = 0, invariant = 0, chunks = 0, three_axes = 0, failures = 0;
  std::vector<double> gradients{}, norms{}, losses{};  // with fast numerics

  void add(const RandomModel& model, const RandomMesh& mesh, const Found& found) {
    ++cases, invariant += model.invariant, chunks += mesh.chunks, three_axes += mesh.three_axes;
    failures += !found.problem.empty();
    if (model.invariant || !found.problem.empty()) return;
    gradients.push_back(found.gradient), norms.push_back(found.norm), losses.push_back(found.loss);
  }
  std::string words() const {
    const auto spread = [](std::vector<double> x) {
      std::ranges::sort(x);
      return x.empty() ? std::string("none") : std::string(text(x[x.size() / 2], " median, ", x.back(), " largest"));
    };
    return text(cases, " cases, ", chunks, " with chunks, ", three_axes, " on three axes; ", invariant,
                " invariant, to the bit; fast: gradients ", spread(gradients), "; norm ", spread(norms), "; loss ", spread(losses),
                "; ", failures, " failures");
  }
};

// Trains models from seed `first` on, each on `meshes` meshes.
void fuzz_gradients(uint64_t first, uint64_t models, uint64_t meshes) {
  const Workplace place;
  Totals totals;
  for (uint64_t seed = first; seed < first + models; ++seed) {
    std::filesystem::remove_all(place.scratch / "runs");
    Chain chain(place, seed);
    const std::string alone = chain.train_alone();
    INFO(chain.command());
    REQUIRE(alone == "");
    for (uint64_t number = 0; number < meshes; ++number) {
      const RandomMesh mesh = chain.mesh(number);
      const Found found = chain.train_on(mesh, number);
      totals.add(chain.model(), mesh, found);
      INFO("TRIREME_FUZZ_SEED=" << seed << ", mesh " << number << ": " << chain.command());
      CHECK(found.problem == "");
      if (!found.problem.empty()) break;  // the next would continue from it
    }
  }
  WARN(totals.words());
}

}  // namespace

// The first model of the fuzz, and the first whose shards share key-value heads.
TEST_CASE("random meshes have the gradients of one rank and read each other's states", "[unsanitized]") {
  const Workplace place;
  uint64_t sharing = 2;
  while (!random_model(place.scratch / "config.yaml", sharing).shares_heads) ++sharing;
  fuzz_gradients(1, 1, kMeshes);
  fuzz_gradients(sharing, 1, kMeshes);
}

TEST_CASE("many random meshes have the gradients of one rank and read each other's states", "[.soak]") {
  fuzz_gradients(std::stoull(asked("TRIREME_FUZZ_SEED", "1")), std::stoull(asked("TRIREME_FUZZ_MODELS", "100")), kMeshes);
}

}  // namespace trireme
