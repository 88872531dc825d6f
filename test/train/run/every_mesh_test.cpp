// Every mesh of up to eight ranks trains like one rank: the same losses and gradient norms, and the
// bytes of the plan.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "parallel/host_collectives.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/process.h"
#include "test/train/tiny_mesh.h"

namespace trireme {
namespace {

constexpr int64_t kSoakSteps = kSanitized ? kTinySteps : 20;

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double relative = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) / std::abs(static_cast<double>(a[i]));
    most = relative >= most || relative != relative ? relative : most;
  }
  return most;
}

struct MeshCase {
  ParallelConfig parallel;
  std::string told;
};

struct Division {
  int64_t zero, shard;
};

// Every way to divide the state of so many replicas: none, by all, and each stage by each number that divides them.
std::vector<Division> divisions_of(int64_t replicas) {
  std::vector<Division> all{{0, 0}};
  for (int64_t zero = 1; zero <= (replicas > 1 ? 3 : 0); ++zero)
    for (int64_t shard = 0; shard < replicas; ++shard)
      if (shard == 0 || replicas % shard == 0) all.push_back({zero, shard});
  return all;
}

// Every way to cut a model over so many ranks.
std::vector<MeshCase> meshes_of(int64_t ranks, Numerics numerics) {
  std::vector<MeshCase> cases;
  const auto schedules = [](int64_t pp) {
    using enum Schedule;
    return pp > 1 ? std::vector<Schedule>{gpipe, one_f_one_b, interleaved, zero_bubble, zero_bubble_v}
                  : std::vector<Schedule>{one_f_one_b};
  };
  for (int64_t dp = 1; dp <= ranks; ++dp)
    for (int64_t pp = 1; dp * pp <= ranks; ++pp) {
      const int64_t tp = ranks / dp / pp;
      if (dp * pp * tp != ranks || kTinyBatch % dp != 0 || 8 % tp != 0) continue;
      for (const Schedule schedule : schedules(pp))
        for (const auto [zero, shard] : divisions_of(dp))
          for (const bool sequence : tp > 1 ? std::vector<bool>{false, true} : std::vector<bool>{true}) {
            if (schedule == Schedule::interleaved && kTinyBatch / dp % pp != 0) continue;
            if ((schedule == Schedule::interleaved || schedule == Schedule::zero_bubble_v) && 2 * pp > 8) continue;
            MeshCase one{.parallel = {.dp = dp, .pp = pp, .tp = tp, .zero = zero, .shard = shard, .schedule = schedule},
                         .told = text("dp ", dp, " pp ", pp, " tp ", tp, " zero ", zero, " shard ", shard, " ", name_of(schedule),
                                      sequence ? " sequence" : "")};
            one.parallel.sequence = sequence, one.parallel.numerics = numerics;
            if (numerics == Numerics::invariant) one.parallel.max_tp = 8;
            cases.push_back(one);
          }
    }
  return cases;
}

// Cuts a pipeline within layers, with an empty first or last piece, and units of several half-layers, exchanges beside products,
// and sums once a step, by the number of a case.
std::string cut_by_hand(RunConfig& config, size_t number) {
  ParallelConfig& p = config.parallel;
  if (p.schedule == Schedule::zero_bubble) p.deferred = static_cast<int64_t>(number) % 3;
  p.tp_overlap = p.tp > 1 && number % 3 > 0;
  if (p.zero > 1 && number % 4 > 1) p.unit_size = number % 8 > 3 ? 0.02 : 0.1;
  if (p.zero > 1 && number % 3 == 0 && p.numerics == Numerics::fast) p.reduce_when = ReduceWhen::step;
  const int64_t pieces = p.pp * p.stage_chunks();
  std::string told = text(" unit_size ", p.unit_size, p.tp_overlap ? " tp_overlap" : "",
                          p.reduce_when == ReduceWhen::step ? " reduce_when step" : "");
  if (pieces == 1 || number % 2 == 0) return told;
  p.layers.assign(static_cast<size_t>(pieces), 0.5);
  if (pieces > 2 && number % 3 > 0) p.layers.front() = 0;
  if (number % 3 < 2) p.layers.back() = 0;
  double left = static_cast<double>(config.model.layers) - std::accumulate(p.layers.begin(), p.layers.end(), 0.0);
  for (size_t at = number; left > 0; ++at)
    if (double& layers = p.layers[at % p.layers.size()]; layers > 0) layers += 0.5, left -= 0.5;
  told += " layers";
  for (const double layers : p.layers) told += text(" ", layers);
  return told;
}

// The trajectory of one rank: rank 0 computes it, or reads it from the file of this name where an earlier launch has left it.
Trajectory one_rank(const RunConfig& config, const World& world, const std::string& file) {
  const Mesh all(world, {});
  std::string bytes;
  if (all.first() && std::filesystem::exists(file)) bytes = read_text(file);
  if (all.first() && bytes.empty()) {
    const Trajectory one = trajectory(config, Mesh());
    for (const auto* numbers : {&one.losses, &one.norms})
      bytes.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(float));
    write_text(file, bytes);
  }
  bytes = broadcast(all.all(), bytes);
  const auto steps = static_cast<size_t>(config.train.steps);
  Trajectory one{.losses = std::vector<float>(steps), .norms = std::vector<float>(steps)};
  REQUIRE(bytes.size() == 2 * steps * sizeof(float));
  std::memcpy(one.losses.data(), bytes.data(), bytes.size() / 2);
  std::memcpy(one.norms.data(), bytes.data() + bytes.size() / 2, bytes.size() / 2);
  return one;
}

// Runs every `stride`-th mesh of the launcher's ranks, from number `first`. Returns how many.
int run_meshes(const World& world, int64_t steps, size_t first, size_t stride) {
  int count = 0;
  for (const Numerics numerics : {Numerics::fast, Numerics::invariant})
    for (const std::string model : {"gpt2", "llama", "llama, untied"}) {
      if (kSanitized && (numerics == Numerics::invariant) != (model == "llama")) continue;
      RunConfig config = tiny(model);
      config.train.steps = steps;
      config.parallel.numerics = numerics;
      if (numerics == Numerics::invariant) config.parallel.max_tp = 8;
      config.parallel.dp = 1;
      const Trajectory one = one_rank(config, world, text(name_of(numerics), " ", model));
      const std::vector<MeshCase> cases = meshes_of(world.size(), numerics);
      for (size_t i = first % std::min(stride, cases.size()); i < cases.size(); i += stride) {
        config.parallel = cases[i].parallel;
        // Computing again changes no bit.
        config.train.recompute = static_cast<Recompute>(i % 3);
        config.train.recompute_stages = i / 3 % (config.parallel.pp + 1);
        const std::string cut = cut_by_hand(config, i / 3 + first);
        const std::string told = text(model, ", ", name_of(numerics), ", ", cases[i].told, cut);
        if (told.find(environment("TRIREME_MESH")) == std::string::npos) continue;
        INFO(told);
        const Mesh mesh(world, config.parallel);
        const Trajectory many = trajectory(config, mesh);
        if (numerics == Numerics::invariant) {
          CHECK(std::memcmp(many.losses.data(), one.losses.data(), one.losses.size() * 4) == 0);
          CHECK(std::memcmp(many.norms.data(), one.norms.data(), one.norms.size() * 4) == 0);
        }
        CHECK(difference(one.losses, many.losses) < 2e-6);
        CHECK(difference(one.norms, many.norms) < 2e-5);
        ++count;
      }
      first += 7;
    }
  return count;
}

}  // namespace

TEST_CASE("some meshes of these ranks", "[.launched]") {
  const World world;
  const size_t one_of = (world.size() < 4 ? 17 : world.size() < 8 ? 97 : 401) * (kSanitized ? 15 : 1);
  WARN(run_meshes(world, kTinySteps, static_cast<size_t>(world.size()), one_of) << " meshes of " << world.size());
}

// TRIREME_MESHES=2/5 runs the second of five parts, TRIREME_MESH="dp 4 pp 2" those whose description has these words. By hand, set
// OMP_NUM_THREADS=1: threads that spin take most of the time.
TEST_CASE("all meshes of these ranks", "[.launched]") {
  const World world;
  size_t part = 1, parts = 1;
  char slash = '/';
  if (const char* const asked = std::getenv("TRIREME_MESHES"); asked != nullptr)
    std::istringstream(asked) >> part >> slash >> parts;
  REQUIRE((part >= 1 && part <= parts && slash == '/'));
  WARN(run_meshes(world, kSoakSteps, part - 1, parts) << " meshes of " << world.size());
}

// Its embedding and its head lie side by side, and so do the table and the head's copy of it.
TEST_CASE("a stage of embedding and head alone on these ranks", "[.launched]") {
  const World world;
  RunConfig config = tiny("gpt2");
  config.parallel.numerics = Numerics::invariant, config.parallel.max_tp = 8, config.parallel.dp = 1;
  const Trajectory one = one_rank(config, world, "alone");
  config.parallel.dp = 2, config.parallel.pp = 2, config.parallel.zero = 3, config.parallel.schedule = Schedule::zero_bubble_v;
  config.parallel.layers = {0, 4, 4, 0};
  const Mesh mesh(world, config.parallel);
  const Trajectory many = trajectory(config, mesh);
  CHECK(many.losses == one.losses);
  CHECK(many.norms == one.norms);
}

namespace {

// In this directory.
void pass_on(const Scratch& scratch, int ranks, const std::string& tests) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ended ended = Process(scratch.path(), {tests}, ranks, program).wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("All tests passed") != std::string::npos);
  const size_t told = ended.out.rfind(" meshes of "), line = ended.out.rfind('\n', told);
  if (told != std::string::npos) WARN(ended.out.substr(line + 1, ended.out.find('\n', told) - line - 1) << " ranks");
}

}  // namespace

TEST_CASE("meshes of four ranks train the model of one rank") {
  const Scratch scratch;
  pass_on(scratch, 4, "some meshes of these ranks");
  pass_on(scratch, 4, "a stage of embedding and head alone on these ranks");
}

TEST_CASE("meshes of two, six and eight ranks train the model of one rank", "[unsanitized]") {
  const Scratch scratch;
  for (const int ranks : {2, 6, 8}) pass_on(scratch, ranks, "some meshes of these ranks");
}

TEST_CASE("every mesh of up to eight ranks trains the model of one rank", "[.soak]") {
  const Scratch scratch;
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) pass_on(scratch, ranks, "all meshes of these ranks");
}

}  // namespace trireme
