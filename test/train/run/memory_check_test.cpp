// Checks of a start on a GPU before it takes memory: the ranks that share the GPU, and the shapes that its kernels take.
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

}  // namespace trireme
