// What the CPU's ops refuse beforehand, a GPU finds when it is there: the lane stops, and the next who waits for it is told.
#include "kernels/device.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/rope.h"
#include "test/catch.h"
#include "test/reference/compare.h"

namespace trireme {

// An error of a GPU stays with the process: each of these is the only one of its.
TEST_CASE("a token outside of its table stops the lane") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {3, 2}), table(Dtype::f32, {4, 2}), tokens(Dtype::i32, {3}, {0, 4, 3});
  run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = table});
  CHECK_THROWS_WITH(device.compute().finish(), ContainsSubstring("CUDA:"));
}

TEST_CASE("a target beyond the classes stops the lane") {
  Device device(Place::cuda);
  const HostTensor loss(Dtype::f32, {2}), logits(Dtype::f32, {2, 7}), targets(Dtype::i32, {2}, {3, 7});
  run(device.compute(), CrossEntropyForward{.loss = loss, .lse = loss, .logits = logits, .targets = targets});
  CHECK_THROWS_WITH(device.compute().finish(), ContainsSubstring("CUDA:"));
}

TEST_CASE("a position outside of its table stops the lane") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {1, 1, 4}), table(Dtype::f32, {5, 2, 2}), positions(Dtype::i32, {1}, {5});
  run(device.compute(), Rotate{.x = x, .positions = positions, .table = table});
  CHECK_THROWS_WITH(device.compute().finish(), ContainsSubstring("CUDA:"));
}

}  // namespace trireme
