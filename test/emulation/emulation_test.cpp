// The emulation finds what is wrong with a kernel; these kernels have planted faults.
#include <cuda_runtime.h>

#include <atomic>
#include <thread>

#include "kernels/cuda/hardware.cuh"
#include "test/catch.h"

namespace {

// Device memory of n floats.
class Floats {
 public:
  explicit Floats(size_t n) { REQUIRE(cudaMalloc(&data_, n * sizeof(float)) == cudaSuccess); }
  ~Floats() { cudaFree(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  operator float*() const { return data_; }

 private:
  float* data_ = nullptr;
};

template <class... P, class... A>
void go(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared, A... arguments) {
  trireme::emulation::run_grid({.x = blocks}, {.x = threads}, shared, [&] { kernel(arguments...); });
  trireme::emulation::check_guards();
}

__global__ void sum_of_block(float* y, const float* x, bool barrier) {
  auto* s = reinterpret_cast<float*>(trireme::emulation::shared_memory());
  s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (barrier) __syncthreads();
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}

// Number of the blocks' sums of 64 ones that are not 64, over three launches.
int wrong_sums(bool barrier) {
  constexpr unsigned kBlocks = 30, kThreads = 64;
  const Floats x(kBlocks * kThreads), y(kBlocks);
  for (unsigned i = 0; i < kBlocks * kThreads; ++i) x[i] = 1;
  int wrong = 0;
  for (int launch = 0; launch < 3; ++launch) {
    go(sum_of_block, kBlocks, kThreads, kThreads * sizeof(float), static_cast<float*>(y), static_cast<const float*>(x), barrier);
    for (unsigned i = 0; i < kBlocks; ++i) wrong += y[i] != kThreads;
  }
  return wrong;
}

__global__ void shuffle_of_half(float* y) {
  if (threadIdx.x < 16)
    y[0] = __shfl_xor_sync(~0u, 1.0f, 1);
  else
    __syncthreads();
}
__global__ void barriers_of_halves() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void one_leaves() {
  if (threadIdx.x == 3) return;
  __syncwarp();
}
__global__ void write_at(float* y, int i) { y[i] = 1; }
__global__ void write_shared(int i) { reinterpret_cast<float*>(trireme::emulation::shared_memory())[i] = 1; }

__global__ void lanes(float* y) {
  const auto lane = static_cast<float>(threadIdx.x % 32);
  float sum = lane;
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
  y[threadIdx.x * 6] = sum;
  y[threadIdx.x * 6 + 1] = __shfl_down_sync(~0u, lane, 1);
  y[threadIdx.x * 6 + 2] = __shfl_up_sync(~0u, lane, 3, 8);
  y[threadIdx.x * 6 + 3] = __shfl_sync(~0u, lane, 5, 16);
  y[threadIdx.x * 6 + 4] = static_cast<float>(__popc(__ballot_sync(~0u, threadIdx.x % 3 == 0)));
  y[threadIdx.x * 6 + 5] = __any_sync(~0u, threadIdx.x == 40) ? 1 : 0;
}

__global__ void copy_behind(float* y, const float* x, bool waits) {
  auto* s = reinterpret_cast<float*>(trireme::shared_bytes());
  trireme::copy_async(s, x, true);
  trireme::copy_async(s + 4, x, false);
  trireme::end_group();
  if (waits) trireme::wait_for_groups<0>();
  for (int i = 0; i < 8; ++i) y[i] = s[i];
}

// c = a b, a [16, 16], b [16, 8] by tensor cores; a and b bf16, small integers.
__global__ void small_product(float* c, const trireme::Bf16* a, const trireme::Bf16* b) {
  auto* s = reinterpret_cast<trireme::Bf16*>(trireme::shared_bytes());
  const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (unsigned i = lane; i < 256; i += 32) s[i] = a[i];
  for (unsigned i = lane; i < 256; i += 32) s[256 + i] = b[i / 16 * 8 + i % 8];  // its columns twice
  __syncthreads();
  uint32_t left[4], right[4];
  float sum[4] = {};
  trireme::load_matrices(left, s + lane % 16 * 16 + lane / 16 * 8);
  trireme::load_matrices_transposed(right, s + 256 + lane % 16 * 16 + lane / 16 * 8);
  trireme::multiply_add(sum, left, right[0], right[1]);
  for (unsigned i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
}

}  // namespace

TEST_CASE("a kernel without a barrier it needs gives wrong sums, with it right ones") {
  CHECK(wrong_sums(true) == 0);
  CHECK(wrong_sums(false) > 0);
}

TEST_CASE("divergent barriers and shuffles are found, with the threads and lines") {
  const Floats y(1);
  CHECK_THROWS_WITH(go(shuffle_of_half, 1, 32, 0, static_cast<float*>(y)), ContainsSubstring("never come") &&
                                                                               ContainsSubstring("thread (15, 0, 0)") &&
                                                                               ContainsSubstring("__shfl_xor_sync"));
  CHECK_THROWS_WITH(go(barriers_of_halves, 1, 32, 0),
                    ContainsSubstring("from different places") && ContainsSubstring("emulation_test.cpp:"));
  CHECK_THROWS_WITH(go(one_leaves, 2, 32, 0), ContainsSubstring("thread (3, 0, 0) has ended"));
  CHECK_THROWS_WITH(go(one_leaves, 1, 2, 0), ContainsSubstring("lanes of the mask that the block does not have"));
}

TEST_CASE("writes beyond device memory and shared memory are found", "[unsanitized]") {
  const Floats y(10);
  go(write_at, 1, 1, 0, static_cast<float*>(y), 9);
  for (const int i : {10, -1, 73, -64}) {
    CHECK_THROWS_WITH(go(write_at, 1, 1, 0, static_cast<float*>(y), i), ContainsSubstring("outside of 40 bytes"));
    std::memset(static_cast<float*>(y) + i, 0xa5, sizeof(float));  // repaired for the next check
  }
  go(write_shared, 1, 1, 40, 9);
  CHECK_THROWS_WITH(go(write_shared, 1, 1, 40, 10), ContainsSubstring("beyond the 40 bytes of shared memory"));
}

TEST_CASE("memory of the device and of a block begin as NaN") {
  const Floats y(1);
  CHECK(y[0] != y[0]);
  go(
      +[](float* to) { *to = *reinterpret_cast<float*>(trireme::emulation::shared_memory()); }, 1, 1, 4, static_cast<float*>(y));
  CHECK(y[0] != y[0]);
}

TEST_CASE("lanes of a warp give each other their values as on a GPU") {
  const Floats y(64 * 6);
  go(lanes, 1, 64, 0, static_cast<float*>(y));
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned lane = i % 32;
    CHECK(y[i * 6] == 31 * 16);
    CHECK(y[i * 6 + 1] == static_cast<float>(lane < 31 ? lane + 1 : lane));
    CHECK(y[i * 6 + 2] == static_cast<float>(lane % 8 >= 3 ? lane - 3 : lane));
    CHECK(y[i * 6 + 3] == static_cast<float>(lane / 16 * 16 + 5));
    CHECK(y[i * 6 + 4] == 11);
    CHECK(y[i * 6 + 5] == (i < 32 ? 0 : 1));
  }
}

TEST_CASE("what is copied to shared memory is there once it is waited for, and in some blocks not before") {
  const Floats x(4), y(8);
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(i + 1);
  go(copy_behind, 1, 1, 32, static_cast<float*>(y), static_cast<const float*>(x), true);
  for (int i = 0; i < 8; ++i) CHECK(y[i] == static_cast<float>(i < 4 ? i + 1 : 0));
  int early = 0, late = 0;
  for (int round = 0; round < 40; ++round) {
    go(copy_behind, 1, 1, 32, static_cast<float*>(y), static_cast<const float*>(x), false);
    ++(y[0] == 1 ? early : late);
    for (int i = 0; i < 8; ++i) CHECK((y[i] != y[i]) == (y[0] != 1));
  }
  CHECK((early > 5 && late > 5));
  CHECK_THROWS_WITH(go(copy_behind, 1, 1, 32, static_cast<float*>(y), static_cast<const float*>(x) + 1, true),
                    ContainsSubstring("not at a multiple of 16"));
}

TEST_CASE("tensor cores multiply what ldmatrix has dealt out") {
  const Floats c(128), memory(192);
  auto* a = reinterpret_cast<trireme::Bf16*>(static_cast<float*>(memory));
  trireme::Bf16* b = a + 256;
  for (int i = 0; i < 256; ++i) a[i] = trireme::Bf16(static_cast<float>(i * 7 % 23 - 11));
  for (int i = 0; i < 128; ++i) b[i] = trireme::Bf16(static_cast<float>(i * 5 % 19 - 9));
  go(small_product, 1, 32, 1024, static_cast<float*>(c), static_cast<const trireme::Bf16*>(a),
     static_cast<const trireme::Bf16*>(b));
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += static_cast<float>(a[row * 16 + k]) * static_cast<float>(b[k * 8 + column]);
      CHECK(c[row * 8 + column] == sum);
    }
}

TEST_CASE("streams run beside each other, and events order them") {
  cudaStream_t one = nullptr, two = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  std::atomic<bool> go_on = false;
  int steps = 0;
  trireme::emulation::in_stream(one, [&] {
    while (!go_on) std::this_thread::yield();
    steps = 1;
  });
  cudaEventRecord(event, one);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  cudaStreamWaitEvent(two, event);
  int seen = 0;
  trireme::emulation::in_stream(two, [&] { seen = steps; });
  go_on = true;
  CHECK(cudaStreamSynchronize(two) == cudaSuccess);
  CHECK(seen == 1);
  cudaEventDestroy(event);
  cudaStreamDestroy(one);
  cudaStreamDestroy(two);
}

namespace {

// Two streams, and as many events as a test of graphs needs.
struct Streams {
  cudaStream_t one = nullptr, two = nullptr;
  cudaEvent_t events[4] = {};
  Streams() {
    for (cudaStream_t* stream : {&one, &two}) REQUIRE(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) == cudaSuccess);
    for (cudaEvent_t& event : events) REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  }
  ~Streams() {
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
    for (const cudaStream_t stream : {one, two}) cudaStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  void begin() const { REQUIRE(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal) == cudaSuccess); }
  void fork() const {
    CHECK(cudaEventRecord(events[0], one) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(two, events[0]) == cudaSuccess);
  }
  void join() const {
    CHECK(cudaEventRecord(events[1], two) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(one, events[1]) == cudaSuccess);
  }
  cudaError_t end() const {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(one, &graph);
    CHECK((graph == nullptr) == (error != cudaSuccess));
    cudaGraphDestroy(graph);
    return error;
  }
};

}  // namespace

TEST_CASE("a graph does nothing until it is launched, and each launch does all of it in the order of its events") {
  const Streams s;
  std::atomic<int> x = 1, met = 0;
  s.begin();
  trireme::emulation::in_stream(s.one, [&] { x = x * 2; });
  s.fork();
  // Runs both concurrently: neither ends before the other has begun.
  const auto meet = [&] {
    const int target = met / 2 * 2 + 2;
    ++met;
    while (met < target) std::this_thread::yield();
  };
  trireme::emulation::in_stream(s.two, [&] { meet(), x = x + 3; });
  trireme::emulation::in_stream(s.one, meet);
  s.join();
  trireme::emulation::in_stream(s.one, [&] { x = x * 10; });
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaStreamEndCapture(s.one, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  CHECK(x == 1);
  for (const int expected : {50, 1030}) {
    CHECK(cudaGraphLaunch(exec, s.one) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s.one) == cudaSuccess);
    CHECK(x == expected);
  }
  cudaGraphExecDestroy(exec);
}

TEST_CASE("what CUDA refuses while streams are captured is refused") {
  const Streams s;
  void* memory = nullptr;
  SECTION("a stream that is not joined again") {
    s.begin();
    s.fork();
    trireme::emulation::in_stream(s.two, [] {});
    CHECK(s.end() == cudaErrorStreamCaptureUnjoined);
  }
  SECTION("a join that leaves out the last work") {
    s.begin();
    s.fork();
    s.join();
    trireme::emulation::in_stream(s.two, [] {});
    CHECK(s.end() == cudaErrorStreamCaptureUnjoined);
  }
  SECTION("waiting for what happened outside") {
    CHECK(cudaEventRecord(s.events[2], s.two) == cudaSuccess);
    s.begin();
    CHECK(cudaStreamWaitEvent(s.one, s.events[2]) == cudaErrorStreamCaptureIsolation);
    CHECK(s.end() == cudaErrorStreamCaptureIsolation);
  }
  SECTION("waiting outside for what happens in it") {
    s.begin();
    CHECK(cudaEventRecord(s.events[2], s.one) == cudaSuccess);
    CHECK(s.end() == cudaSuccess);
    CHECK(cudaStreamWaitEvent(s.two, s.events[2]) == cudaErrorCapturedEvent);
  }
  SECTION("a host that waits, or takes memory") {
    s.begin();
    CHECK(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamSynchronize(s.one) == cudaErrorStreamCaptureUnsupported);
    CHECK(s.end() == cudaErrorStreamCaptureUnsupported);
  }
}
