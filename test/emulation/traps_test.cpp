// Errors that the CPU's ops refuse beforehand and a GPU meets in a kernel: the lane stops, and the
// next wait throws.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/cuda_facts.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "kernels/staging_buffer.h"
#include "test/catch.h"
#include "test/emulation/stream.h"
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

TEST_CASE("a target beyond the classes of all shards stops the lane of a shard") {
  Device device(Place::cuda);
  const HostTensor sums(Dtype::f32, {2, 2}), logits(Dtype::f32, {2, 4}), top(Dtype::f32, {2}), targets(Dtype::i32, {2}, {3, 7});
  const ShardSums op{.sums = sums, .logits = logits, .top = top, .targets = targets, .first = 0, .valid = 4, .classes = 7};
  CHECK_THROWS_WITH(to_the_end(device, op), ContainsSubstring("CUDA:"));
}

TEST_CASE("a position outside of its table stops the lane") {
  Device device(Place::cuda);
  const HostTensor x(Dtype::f32, {1, 1, 4}), table(Dtype::f32, {5, 2, 2}), positions(Dtype::i32, {1}, {5});
  CHECK_THROWS_WITH(to_the_end(device, Rotate{.x = x, .positions = positions, .table = table}), ContainsSubstring("CUDA:"));
}

TEST_CASE("a guard that stops the lane's host from waiting leaves nothing that waits or frees memory", "[unsanitized]") {
  std::atomic<bool> ends = false, ended = false;
  std::vector<cudaStream_t> streams;
  {
    Device device(Place::cuda);
    for (CudaLane* const lane : device.cuda_lanes()) streams.push_back(stream_of(*lane));
    device.guard_waits({.ask = [](const void*, double) { throw Error("in vain"); }, .about = nullptr});
    const Buffer memory(device, 1024, "a test");
    StagingBuffer staging(device, 1024);
    emulation::in_stream(streams.front(), [&] {
      for (int i = 0; i < 3000 && !ends; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ended = true;
    });
    staging.posted(device.compute());
    CHECK_FALSE(gpu_is_stuck());
    CHECK_THROWS_WITH(staging.wait(), ContainsSubstring("in vain"));
    CHECK(gpu_is_stuck());
  }
  CHECK_FALSE(ended);
  ends = true;
  for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
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

TEST_CASE("heads that do not fit into a GPU's shared memory are refused with the largest that do") {
  Device device(Place::cuda);
  const HostTensor q(Dtype::f32, {1, 2, 1, 256}), out(Dtype::f32, {1, 2, 1, 256}), lse(Dtype::f32, {1, 1, 2});
  const AttentionForward op{.out = out, .lse = lse, .q = q, .k = q, .v = q, .scale = 1};
  constexpr auto kShared = "TRIREME_EMULATED_SHARED_KIB";
  const char* const given = std::getenv(kShared);
  const std::string before = given != nullptr ? given : "227";
  setenv(kShared, "99", 1);
  CHECK(kernel_limits().shared_bytes == 99 * 1024);
  CHECK(kernel_limits().head_size == 188);  // backward
  CHECK_THROWS_WITH(run(device.compute(), op), ContainsSubstring("heads of size 256; the maximum on this GPU is 252"));
  setenv(kShared, before.c_str(), 1);
  CHECK(kernel_limits().head_size == 256);
  to_the_end(device, op);
}

TEST_CASE("memory that a GPU or its host does not have is named with its size, its purpose and a remedy") {
  Device device(Place::cuda);
  constexpr int64_t kMuch = int64_t{1} << 40;
  CHECK_THROWS_WITH(Arena(device, kMuch, "activations"),
                    ContainsSubstring("out of memory: 1099511627776 bytes of the GPU for activations; lower train.microbatch"));
  CHECK_THROWS_WITH(Arena(device, kMuch, "optimizer", Memory::pinned),
                    ContainsSubstring("bytes of pinned host memory for optimizer; free memory of this machine"));
  CHECK_THROWS_WITH(StagingBuffer(device, kMuch), ContainsSubstring("bytes of pinned host memory for copies from or to the GPU"));
  CHECK_THROWS_WITH(scratch(*device.compute().cuda().lane, kMuch), ContainsSubstring("for scratch of a CUDA lane"));
  CHECK(scratch(*device.compute().cuda().lane, 1024) != nullptr);
}

}  // namespace trireme
