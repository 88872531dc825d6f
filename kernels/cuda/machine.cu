// Lanes are CUDA streams; a moment of one is an event from a ring of its own. An event that the ring has come around to again marks
// a later moment: who still waits for the earlier one waits for more than it needs.
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/device.h"

namespace trireme {

struct CudaLane {
  cudaStream_t stream = nullptr;
  std::array<cudaEvent_t, 256> events{};
  uint64_t moments = 0;
  Ledger* ledger = nullptr;
  std::byte* scratch = nullptr;
  int64_t scratch_bytes = 0;
  struct Timer {
    cudaEvent_t begin = nullptr, end = nullptr;
    double* seconds = nullptr;
  };
  std::vector<Timer> timers;
  size_t running = 0;  // timers begun since they were collected
};

void use_gpu(int number) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) ok(cudaSetDevice(number % gpus));
}

CudaLane* open_cuda_lane(Ledger& ledger) {
  auto lane = std::make_unique<CudaLane>();
  lane->ledger = &ledger;
  ok(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
  for (cudaEvent_t& event : lane->events) ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return lane.release();
}

void close_cuda_lane(CudaLane* lane) noexcept {
  const std::unique_ptr<CudaLane> owned(lane);
  if (lane == nullptr) return;
  if (lane->scratch != nullptr) cudaFreeAsync(lane->scratch, lane->stream);
  cudaStreamSynchronize(lane->stream);
  for (const cudaEvent_t event : lane->events) cudaEventDestroy(event);
  for (const CudaLane::Timer& timer : lane->timers) cudaEventDestroy(timer.begin), cudaEventDestroy(timer.end);
  cudaStreamDestroy(lane->stream);
  lane->ledger->release(lane->scratch, lane->scratch_bytes);
}

int64_t scratch_bytes(const CudaLane& lane) { return lane.scratch_bytes; }

uint64_t record_moment(CudaLane& lane) {
  ok(cudaEventRecord(lane.events[++lane.moments % lane.events.size()], lane.stream));
  return lane.moments;
}

void wait_for_moment(CudaLane& lane, CudaLane& other, uint64_t moment) {
  ok(cudaStreamWaitEvent(lane.stream, other.events[moment % other.events.size()], 0));
}

void finish_lane(CudaLane& lane) { ok(cudaStreamSynchronize(lane.stream)); }

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

void begin_timer(CudaLane& lane) {
  if (lane.running == lane.timers.size()) {
    CudaLane::Timer& timer = lane.timers.emplace_back();
    for (cudaEvent_t* event : {&timer.begin, &timer.end}) ok(cudaEventCreateWithFlags(event, cudaEventDefault));
  }
  ok(cudaEventRecord(lane.timers[lane.running++].begin, lane.stream));
}

void end_timer(CudaLane& lane, double* seconds) noexcept {
  CudaLane::Timer& timer = lane.timers[lane.running - 1];
  timer.seconds = seconds;
  cudaEventRecord(timer.end, lane.stream);  // an error stays, and collect_timers() meets it
}

void collect_timers(CudaLane& lane) {
  finish_lane(lane);
  for (size_t i = 0; i < lane.running; ++i) {
    float milliseconds = 0;
    ok(cudaEventElapsedTime(&milliseconds, lane.timers[i].begin, lane.timers[i].end));
    *lane.timers[i].seconds += 1e-3 * static_cast<double>(milliseconds);
  }
  lane.running = 0;
}

std::byte* allocate_on_gpu(int64_t bytes) {
  void* memory = nullptr;
  ok(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  ok(cudaMemset(memory, 0, static_cast<size_t>(bytes)));
  ok(cudaDeviceSynchronize());
  return static_cast<std::byte*>(memory);
}

void free_on_gpu(std::byte* memory) noexcept { cudaFree(memory); }

std::byte* allocate_pinned(int64_t bytes) {
  void* memory = nullptr;
  ok(cudaMallocHost(&memory, static_cast<size_t>(bytes)));
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

void free_pinned(std::byte* memory) noexcept { cudaFreeHost(memory); }

void copy_bytes(CudaLane& lane, void* to, const void* from, int64_t bytes) {
  ok(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, lane.stream));
}

cudaStream_t stream_of(CudaLane& lane) { return lane.stream; }

// Taken and given back in the lane's order: neither the host nor another lane waits. A lane may be waiting for a message that
// another rank only sends when this one goes on.
std::byte* scratch(CudaLane& lane, int64_t bytes) {
  if (bytes <= lane.scratch_bytes) return lane.scratch;
  lane.ledger->allocate(bytes - lane.scratch_bytes, "scratch of a CUDA lane");
  if (lane.scratch != nullptr) ok(cudaFreeAsync(std::exchange(lane.scratch, nullptr), lane.stream));
  lane.scratch_bytes = 0;
  void* memory = nullptr;
  ok(cudaMallocAsync(&memory, static_cast<size_t>(bytes), lane.stream));
  lane.scratch = static_cast<std::byte*>(memory), lane.scratch_bytes = bytes;
  return lane.scratch;
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, found = 0;
    ok(cudaGetDevice(&device));
    ok(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device));
    return found;
  }();
  return count;
}

}  // namespace trireme
