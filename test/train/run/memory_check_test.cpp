// Checks of a start before it takes memory: the ranks that share a GPU, the shapes that its kernels take, and a machine's memory.
#include "train/run/memory_check.h"

#include "test/catch.h"

namespace trireme {

TEST_CASE("ranks share a GPU if it is the same, whatever each of them sees") {
  const std::vector<std::string> one_each{"a0", "b1", "c2", "d3"};  // as by srun with a GPU for each task
  for (size_t rank = 0; rank < one_each.size(); ++rank) CHECK(ranks_on_gpu(one_each, rank) == 1);
  const std::vector<std::string> two_of_four{"a0", "b1", "a0", "b1"};
  for (size_t rank = 0; rank < two_of_four.size(); ++rank) CHECK(ranks_on_gpu(two_of_four, rank) == 2);
  CHECK(ranks_on_gpu({"a0", "a0", "b1"}, 2) == 1);
  CHECK(ranks_on_gpu({"a0"}, 0) == 1);
}

TEST_CASE("heads and rows that a GPU's kernels do not take are named with its limit and what to change") {
  const KernelLimits limits{.shared_bytes = 99 << 10, .head_size = 188, .pack = 8, .width = 32768, .odd_width = 8192};
  ModelConfig model;
  model.width = 2048, model.heads = 16;
  model.resolve();
  CHECK(shape_problems(model, limits, "a GPU") == "");
  model.head_size = 256;
  CHECK(shape_problems(model, limits, "a GPU") ==
        "model.head_size = 256: attention on a GPU, whose threads share 99 KiB, takes heads of at most 188: raise model.heads, or "
        "lower model.head_size (by default it is model.width / model.heads), or set kernels.device to cpu");
  model.head_size = 128, model.width = 32768;
  CHECK(shape_problems(model, limits, "a GPU") == "");
  model.width = 32776;
  CHECK_THAT(shape_problems(model, limits, "a GPU"), ContainsSubstring("model.width = 32776: norms on a GPU take at most 32768"));
  model.width = 8191;
  CHECK(shape_problems(model, limits, "a GPU") == "");
  model.width = 8194, model.head_size = 512;
  CHECK_THAT(shape_problems(model, limits, "a GPU"),
             ContainsSubstring("model.head_size = 512") && ContainsSubstring("\nmodel.width = 8194") &&
                 ContainsSubstring("8192 if they are not a multiple of 8: lower model.width, or set kernels.device to cpu"));
}

TEST_CASE("a machine's need is the sum over its ranks, whose pipeline stages differ") {
  Plan first, last;
  first.sizes = {.weights = 10, .gradients = 20, .optimizer = 30, .activations = 400, .temporaries = 5};
  first.copy = 7, first.pinned = 30;
  last.sizes = {.weights = 11, .gradients = 21, .optimizer = 31, .activations = 100, .temporaries = 6};
  last.stage = 1, last.pinned = 31;
  const MachineNeed need = sum_of_needs({need_words(first), need_words(last), need_words(last)});
  CHECK(need.arenas == 465 + 2 * 169);
  CHECK(need.state == 60 + 2 * 63);
  CHECK(need.pinned == 30 + 2 * 31);
  CHECK(need.copied == 7);
  CHECK(need.kept == 0);
  CHECK(need.of_stage == std::map<int64_t, int64_t>{{0, 1}, {1, 2}});
}

TEST_CASE("a lack of a host's memory beside GPUs is blamed on what takes it, with the remedy of each") {
  constexpr int64_t kGiB = int64_t{1} << 30;
  RunConfig config;
  config.checkpoint.async = true, config.checkpoint.memory_every = 5;
  CHECK(host_problem(config, {.pinned = 4 * kGiB, .copied = 2 * kGiB}, 6 * kGiB) == "");
  CHECK(host_problem(config, {.pinned = 7 * kGiB}, 6 * kGiB) ==
        "this run needs 7 GiB, but the machine has 6 GiB: 7 GiB for train.offload = optimizer (set train.offload to none, "
        "or divide the state among more ranks: parallel.zero is 1, parallel.shard 0)");
  const std::string without = host_problem(config, {.copied = 4 * kGiB, .kept = 12 * kGiB}, 6 * kGiB);
  CHECK(without ==
        "this run needs 16 GiB, but the machine has 6 GiB: 4 GiB for copies of the state (set checkpoint.async to false); "
        "12 GiB for checkpoint.memory_every = 5 (set it to 0)");
  config.train.on_bad_step = BadStep::rollback;
  CHECK_THAT(host_problem(config, {.copied = 7 * kGiB}, 6 * kGiB),
             ContainsSubstring("(set checkpoint.async to false, and train.on_bad_step to skip)"));
  config.checkpoint.async = false;
  CHECK_THAT(host_problem(config, {.copied = 7 * kGiB}, 6 * kGiB), ContainsSubstring("(set train.on_bad_step to skip)"));
}

}  // namespace trireme
