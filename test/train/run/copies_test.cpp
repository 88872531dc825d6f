// Copies of the state that send each other fewer bits, or meet only every few steps: near the exact run,
// with the traffic of the plan, and continued to the same bits.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "test/catch.h"
#include "test/sanitized.h"
#include "test/train/process.h"
#include "test/train/tiny_mesh.h"
#include "test/train/workplace.h"
#include "train/step/copy_state.h"

namespace trireme {
namespace {

double most_apart(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) / static_cast<double>(b[i]) - 1));
  return most;
}

struct Apart {
  ParallelConfig parallel;
  double least, most;  // relative difference of a loss from that of one rank
};

// Ways to keep copies apart on four ranks.
std::vector<Apart> ways() {
  std::vector<Apart> list;
  const auto add = [&](const ParallelConfig& mesh, Compress compress, double most) {
    list.push_back({.parallel = mesh, .least = 1e-6, .most = most});
    list.back().parallel.compress = compress, list.back().parallel.compress_rank = 2;
  };
  const ParallelConfig meshes[] = {{.zero = 0},
                                   {.zero = 3, .shard = 2},
                                   {.zero = 2, .shard = 2, .reduce_when = ReduceWhen::step},
                                   {.zero = 1, .shard = 1},
                                   {.dp = 2, .pp = 2, .zero = 0},
                                   {.dp = 2, .tp = 2, .zero = 0}};
  for (const ParallelConfig& mesh : meshes) {
    add(mesh, Compress::bf16, 1e-3);
    add(mesh, Compress::int8, 2e-2);
    if (mesh.shard < 2) add(mesh, Compress::powersgd, 0.2);
    add(mesh, Compress::none, 0.2);
    list.back().parallel.local_steps = 4;
    if (mesh.zero > 0 || mesh.tp > 1) list.back().parallel.local_moments = LocalMoments::mean;
    if (mesh.zero == 1) list.back().parallel.compress = Compress::int8;
  }
  return list;
}

// Runs the hidden test of this name.
void pass_on_four_ranks(const std::string& test) {
  const Scratch scratch;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const Ended ended = Process(scratch.path(), {test}, 4, program).wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
}

}  // namespace

namespace {

// Every `stride`-th way, another part of them for each model.
void check_ways(const World& world, size_t stride) {
  size_t first = 0;
  for (const std::string model : {"gpt2", "llama, untied"}) {
    RunConfig config = tiny(model);
    config.parallel.dp = 1;
    const Trajectory one = trajectory(config, Mesh());
    const std::vector<Apart> all = ways();
    for (size_t i = first++ % stride; i < all.size(); i += stride) {
      const Apart& way = all[i];
      config.parallel = way.parallel;
      CAPTURE(model, way.parallel.zero, way.parallel.shard, way.parallel.pp, way.parallel.tp, way.parallel.local_steps,
              name_of(way.parallel.compress));
      const Trajectory apart = trajectory(config, Mesh(world, config.parallel));
      const double off = most_apart(apart.losses, one.losses);
      CHECK(off > way.least);
      CHECK(off < way.most);
    }
  }
}

}  // namespace

TEST_CASE("some copies apart on the ranks of a launcher", "[.launched]") { check_ways(World(), 2); }
TEST_CASE("all copies apart on the ranks of a launcher", "[.launched]") { check_ways(World(), 1); }

TEST_CASE("copies begin to be apart on the ranks of a launcher", "[.launched]") {
  const World world;
  RunConfig config = tiny("gpt2");
  config.train.steps = 14;  // under sanitizers, too: enough of them after the latest beginning
  for (const Apart& way : ways()) {
    if (way.parallel.pp > 1 || way.parallel.tp > 1) continue;
    CAPTURE(way.parallel.zero, way.parallel.shard, way.parallel.local_steps, name_of(way.parallel.compress));
    const auto losses_of = [&](Compress compress, int64_t local_steps, int64_t apart_after) {
      config.parallel = way.parallel;
      config.parallel.compress = compress, config.parallel.local_steps = local_steps, config.parallel.apart_after = apart_after;
      if (local_steps == 1) config.parallel.local_moments = LocalMoments::own;
      return trajectory(config, Mesh(world, config.parallel)).losses;
    };
    const std::vector<float> exact = losses_of(Compress::none, 1, 0);
    for (const int64_t after : {4, 8}) {
      const std::vector<float> found = losses_of(way.parallel.compress, way.parallel.local_steps, after);
      const int64_t same = std::ranges::mismatch(exact, found).in1 - exact.begin();
      CHECK(same > after);  // the loss of the step after is still of the same weights
      CHECK(same < std::ssize(exact));
    }
  }
}

TEST_CASE("copies of a launcher's ranks meet with moments of their own", "[.launched]") {
  const World world;
  RunConfig config = tiny("gpt2");
  config.train.steps = 4;
  const auto moments = [&](LocalMoments kept) {
    config.parallel = {.zero = 0, .local_steps = 4, .local_moments = kept};
    return trajectory(config, Mesh(world, config.parallel)).own_moments;
  };
  const Mesh mesh(world, {});
  const std::vector<float> own = moments(LocalMoments::own), shared = moments(LocalMoments::mean);
  std::vector<double> magnitudes;
  for (const float x : own) magnitudes.push_back(std::abs(x));
  const std::vector<double> total = sum(mesh.all(), std::vector<double>(own.begin(), own.end())),
                            size = sum(mesh.all(), magnitudes);
  REQUIRE(shared.size() == total.size());
  size_t apart = 0;
  for (size_t i = 0; i < total.size(); ++i) {
    const double copies = static_cast<double>(world.size()), mean = total[i] / copies;
    if (std::abs(shared[i] - mean) > 1e-6 * size[i] / copies) FAIL(i << ": " << shared[i] << " is not the mean " << mean);
    if (std::abs(own[i] - mean) > 0.1 * size[i] / copies) ++apart;
  }
  CHECK(apart > total.size() / 4);
}

TEST_CASE("with parallel.local_moments = mean, copies that meet have the means of their moments") {
  pass_on_four_ranks("copies of a launcher's ranks meet with moments of their own");
}

TEST_CASE("until parallel.apart_after, copies have the bits of the exact run") {
  pass_on_four_ranks("copies begin to be apart on the ranks of a launcher");
}

TEST_CASE("copies that compress or meet seldom train near the exact run, with the plan's memory and traffic") {
  pass_on_four_ranks("some copies apart on the ranks of a launcher");
}

TEST_CASE("all copies that compress or meet seldom train near the exact run", "[.][soak]") {
  pass_on_four_ranks("all copies apart on the ranks of a launcher");
}

namespace {

const std::vector<std::vector<std::string>> kSettingsApart{
    {"parallel.compress=int8"},
    {"parallel.compress=powersgd", "parallel.compress_rank=2"},
    {"parallel.local_steps=5", "parallel.outer_momentum=0.5"},  // 0.9 overshoots in the first hundred steps
    {"parallel.local_steps=10", "parallel.compress=bf16", "parallel.local_moments=mean"},
    {"parallel.local_steps=5", "parallel.apart_after=15"},
    {"parallel.local_steps=5", "parallel.local_moments=mean"},
    {"parallel.compress=int8", "parallel.apart_after=16"}};

Ended train_apart(const Workplace& place, std::vector<std::string> settings, const std::vector<std::string>& more, int ranks) {
  settings.insert(settings.end(), {"parallel.zero=0", "train.microbatch=1"});
  settings.insert(settings.end(), more.begin(), more.end());  // the last of a key counts
  return place.train(settings, ranks);
}

}  // namespace

TEST_CASE("runs whose copies are apart continue to the same bits, also from the middle of a round") {
  const Workplace place;
  for (size_t i = 0; i < kSettingsApart.size(); ++i) {
    CAPTURE(i);
    const std::string whole = "whole" + std::to_string(i), cut = "cut" + std::to_string(i);
    const std::vector<std::string> saves{"checkpoint.every=3"};
    succeed(train_apart(place, kSettingsApart[i], {"train.name=" + whole, saves[0]}, 4));
    // The last two saves, steps 18 and 20, are gone: what is left is of step 15.
    succeed(train_apart(place, kSettingsApart[i], {"train.name=" + cut, saves[0], "checkpoint.keep=9"}, 4));
    for (const std::string step : {"18", "20"})
      std::filesystem::remove_all(place.scratch / ("runs/" + cut + "/checkpoints/step-000000" + step));
    std::filesystem::remove(place.scratch / ("runs/" + cut + "/lineage.json"));
    succeed(train_apart(place, kSettingsApart[i], {"train.name=" + cut, saves[0], "checkpoint.keep=9"}, 4));
    CHECK(place.differ(whole, cut) == 0);
  }
}

TEST_CASE("a run whose copies are apart continues with other numbers of them and on other meshes, and trains on") {
  const Workplace place;
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    const std::string name = "run" + std::to_string(i);
    int64_t steps = 0;
    const auto go_on = [&](int ranks, std::vector<std::string> mesh) {
      CAPTURE(ranks, steps);
      mesh.insert(mesh.end(), {"train.name=" + name, "train.schedule=constant", "model.layers=2", "train.eval_every=20",
                               "train.steps=" + std::to_string(steps += 20)});
      succeed(train_apart(place, kSettingsApart[i], mesh, ranks));
    };
    go_on(4, {});
    go_on(2, {});
    // Two copies again: what is read has the digests of what was saved.
    go_on(4, {"parallel.tp=2"});
    go_on(4, {"parallel.pp=2"});
    go_on(4, {"parallel.zero=3", i == 1 ? "parallel.shard=1" : "parallel.shard=2"});
    go_on(1, {});
    go_on(4, {});
    std::vector<double> held_out;  // after each part
    for (const Json& line : place.metrics(name))
      if (line.contains("val_loss")) held_out.push_back(line.at("val_loss"));
    CAPTURE(held_out);
    REQUIRE(held_out.size() == 7);
    CHECK(held_out.back() < held_out.front() - 0.5);  // of which 2.6 nats are the frequencies of the letters
  }
}

TEST_CASE("runs whose copies are apart save positions of one tp rank, and are evaluated by any number of ranks") {
  const Workplace place;
  const auto train = [&](const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(),
                    {"train.name=" + name, "train.steps=4", "train.eval_every=0", "model.family=gpt2", "train.microbatch=1"});
    succeed(place.train(settings, 4));
    const Ended ended = run_trireme(place.scratch.path(), {"eval", "runs/" + name, "--shards", "shards/validation-00000.h5"});
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  };
  train("products", {"parallel.zero=0", "parallel.tp=2", "parallel.compress=powersgd", "parallel.compress_rank=2"});
  train("codes", {"parallel.shard=2", "parallel.compress=int8"});
  train("rounds", {"parallel.shard=2", "parallel.local_steps=2"});
  train("later", {"parallel.shard=2", "parallel.local_steps=2", "parallel.local_moments=mean", "parallel.apart_after=2"});
}

TEST_CASE("what copies have left out of sums is theirs together, whatever their number") {
  // Copies of a vector of three rows; those of the checkpoint hold 1, 2, 4 and 8 times its first row.
  const auto slices_of = [](std::vector<Bf16>& memory, int64_t copy, int64_t copies) {
    TensorSlice slice{.name = kRestPrefix + "w",
                      .global_shape = {3},
                      .offset = {0},
                      .local = Tensor(memory.data(), Dtype::bf16, Place::cpu, {3})};
    assign_to_copy(slice, copy, copies);
    return std::vector{slice};
  };
  for (const int64_t saved : {1, 2, 4})
    for (const int64_t copies : {1, 2, 3, 4, 8}) {
      float sum = 0;
      for (int64_t copy = 0; copy < copies; ++copy) {
        std::vector<Bf16> memory(3, Bf16(99.0f));
        CopyReader reader(copy, copies);
        const auto reads =
            reader.adapted(slices_of(memory, copy, copies), [&](const std::string&) { return std::vector{3 * saved}; });
        for (const TensorSlice& read : reads) {
          CHECK(read.global_shape == std::vector{3 * saved});
          read.local.as<Bf16>()[0] = Bf16(static_cast<float>(1 << read.offset[0] / 3));
        }
        reader.add_up();
        sum += static_cast<float>(memory[0]);
      }
      CHECK(sum == static_cast<float>((1 << saved) - 1));
    }
  // Without any in the checkpoint, nothing was left out.
  std::vector<Bf16> memory(3, Bf16(99.0f));
  CopyReader reader(0, 2);
  CHECK(reader.adapted(slices_of(memory, 0, 2), [](const std::string&) { return std::vector<int64_t>(); }).empty());
  CHECK(static_cast<float>(memory[1]) == 0);
}

TEST_CASE("weights and moments of a copy are read from any number of copies, and from runs without") {
  std::vector<float> memory(6);
  TensorSlice slice{.name = kLocalPrefix + "adam_m/w",
                    .global_shape = {2, 3},
                    .offset = {0, 0},
                    .local = Tensor(memory.data(), Dtype::f32, Place::cpu, {2, 3})};
  assign_to_copy(slice, 3, 4);
  const auto read = [&](const std::string& known, const std::vector<int64_t>& shape) {
    CopyReader reader(3, 4);
    return reader.adapted({slice}, [&](const std::string& name) { return name == known ? shape : std::vector<int64_t>(); }).front();
  };
  CHECK(read("local/adam_m/w", {8, 3}).offset == std::vector<int64_t>{6, 0});
  CHECK(read("local/adam_m/w", {4, 3}).offset == std::vector<int64_t>{2, 0});
  CHECK(read("local/adam_m/w", {4, 3}).global_shape == std::vector<int64_t>{4, 3});
  const TensorSlice shared = read("adam_m/w", {2, 3});
  CHECK(shared.name == "adam_m/w");
  CHECK(shared.offset == std::vector<int64_t>{0, 0});
  CHECK(shared.global_shape == std::vector<int64_t>{2, 3});
}

TEST_CASE("ways to keep copies apart that cannot be are refused by name") {
  const Workplace place;
  const auto refused = [&](std::vector<std::string> settings) {
    settings.push_back("train.name=refused");
    const Ended ended = place.train(settings, 1);
    CHECK(ended.code == 2);
    return ended.err;
  };
  CHECK_THAT(refused({"parallel.compress=int8"}), ContainsSubstring("needs copies of the state: set parallel.shard"));
  CHECK_THAT(refused({"parallel.local_steps=2"}), ContainsSubstring("needs copies of the state: set parallel.shard"));
  CHECK_THAT(refused({"parallel.compress=int8", "parallel.zero=0", "parallel.reduce=bf16"}),
             ContainsSubstring("needs parallel.reduce = f32"));
  CHECK_THAT(refused({"parallel.compress=powersgd", "parallel.zero=1", "parallel.shard=2"}),
             ContainsSubstring("powersgd needs whole matrices"));
  CHECK_THAT(refused({"parallel.local_steps=3", "parallel.zero=0"}),
             ContainsSubstring("train.steps = 20: must be a multiple of parallel.local_steps = 3"));
  CHECK_THAT(refused({"parallel.local_moments=mean"}), ContainsSubstring("needs parallel.local_steps"));
  CHECK_THAT(refused({"parallel.apart_after=3"}), ContainsSubstring("needs parallel.compress or parallel.local_steps"));
  CHECK_THAT(refused({"parallel.local_steps=5", "parallel.zero=0", "parallel.apart_after=3"}),
             ContainsSubstring("must be a multiple of parallel.local_steps = 5"));
  CHECK_THAT(refused({"parallel.local_steps=20", "parallel.zero=0"}), ContainsSubstring("train.eval_every"));
}

}  // namespace trireme
