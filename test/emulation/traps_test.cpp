// Errors that the CPU's ops refuse beforehand and a GPU meets in a kernel: the lane stops, and the
// next wait throws.
#include <cstdlib>

#include "kernels/device.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "test/catch.h"
#include "test/reference/compare.h"

namespace trireme {
namespace {

// The lane may have stopped already when its next user comes.
void to_the_end(Device& device, const auto& op) {
  run(device.compute(), op);
  device.compute().finish();
}

}  // namespace

// A GPU's error persists in the process, so each of these tests runs in a process of its own.
TEST_CASE("a token outside of its table stops the lane") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {3, 2}), table(Dtype::f32, {4, 2}), tokens(Dtype::i32, {3}, {0, 4, 3});
  CHECK_THROWS_WITH(to_the_end(device, EmbeddingForward{.x = x, .tokens = tokens, .table = table}), ContainsSubstring("CUDA:"));
}

TEST_CASE("a target beyond the classes stops the lane") {
  Device device(Place::cuda);
  const HostTensor loss(Dtype::f32, {2}), logits(Dtype::f32, {2, 7}), targets(Dtype::i32, {2}, {3, 7});
  CHECK_THROWS_WITH(to_the_end(device, CrossEntropyForward{.loss = loss, .lse = loss, .logits = logits, .targets = targets}),
                    ContainsSubstring("CUDA:"));
}

TEST_CASE("a target beyond the classes stops the lane, in place") {
  Device device(Place::cuda);
  const HostTensor loss(Dtype::f32, {2}), logits(Dtype::bf16, {2, 7}), targets(Dtype::i32, {2}, {3, 7});
  CHECK_THROWS_WITH(to_the_end(device, CrossEntropyInPlace{.loss = loss, .logits = logits, .targets = targets}),
                    ContainsSubstring("CUDA:"));
}

TEST_CASE("a position outside of its table stops the lane") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {1, 1, 4}), table(Dtype::f32, {5, 2, 2}), positions(Dtype::i32, {1}, {5});
  CHECK_THROWS_WITH(to_the_end(device, Rotate{.x = x, .positions = positions, .table = table}), ContainsSubstring("CUDA:"));
}

TEST_CASE("a block whose threads want more registers than a multiprocessor has is refused, with its kernel") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {1, 4096}), row(Dtype::f32, {4096}), inverse(Dtype::f32, {1});
  const RmsNormBackward op{.dx = x, .dgain = row, .dy = x, .x = x, .gain = row, .inv_rms = inverse};
  setenv("TRIREME_EMULATED_REGISTERS", "16384", 1);
  CHECK_THROWS_WITH(run(device.compute(), op),
                    ContainsSubstring("rmsnorm_backward<float, float, 8, 1>: a block of 512 threads with ") &&
                        ContainsSubstring(" registers each (sm_") && ContainsSubstring("; a multiprocessor has 16384"));
  unsetenv("TRIREME_EMULATED_REGISTERS");
  to_the_end(device, op);
}

}  // namespace trireme
