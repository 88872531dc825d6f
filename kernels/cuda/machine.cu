// Lanes as CUDA streams. A moment of a lane is an event from the lane's ring. An event that was
// reused marks a later moment: whoever waits for the earlier one waits longer than necessary.
//
// A graph is captured from all lanes: the first is captured, the others are forked from it and
// joined to it again. So it waits for nothing outside, and nothing waits for its parts.
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/device.h"

namespace trireme {

// Events of a lane: more than the moments between a record and its wait. After an update, weights of hundreds of units are
// gathered before the first is read.
constexpr size_t kEvents = 1024;

struct CudaLane {
  cudaStream_t stream = nullptr;
  std::array<cudaEvent_t, kEvents> events{};
  uint64_t moments = 0;
  uint64_t passed = 0;  // earlier moments need no waiting: all lanes come after them
  Ledger* ledger = nullptr;
  std::byte* scratch = nullptr;
  int64_t scratch_bytes = 0;
  struct Timer {
    cudaEvent_t begin = nullptr, end = nullptr;
    double* seconds = nullptr;
  };
  std::vector<Timer> timers;
  size_t running = 0;  // timers begun since the last collection
  WaitGuard guard;
};

namespace {

// Set once a guard has thrown: the GPU's work may wait for another rank for ever. Memory, events and lanes then go with the
// process.
std::atomic<bool> stuck = false;

}  // namespace

bool gpu_is_stuck() noexcept { return stuck; }

void use_gpu(int number) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) ok(cudaSetDevice(number % gpus));
}

std::string gpu_bus() {
  std::array<char, 32> bus{};
  int device = 0;
  ok(cudaGetDevice(&device));
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) != cudaSuccess)
    (void)cudaGetLastError();  // or the next call would report it
  return bus.data();
}

std::string gpu_uuid() {
  cudaDeviceProp properties{};
  ok(cudaGetDeviceProperties(&properties, current_gpu()));
  std::string digits;
  for (const char byte : properties.uuid.bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    digits += {"0123456789abcdef"[bits >> 4], "0123456789abcdef"[bits & 15]};
  }
  return digits;
}

GpuMemory gpu_memory() {
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  return {.free = static_cast<int64_t>(free), .total = static_cast<int64_t>(total)};
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
  if (lane == nullptr || stuck) return;
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
  if (moment <= other.passed) return;
  ok(cudaStreamWaitEvent(lane.stream, other.events[moment % other.events.size()], 0));
}

void guard_waits(CudaLane& lane, WaitGuard guard) { lane.guard = guard; }

namespace {

void ask_guard(const WaitGuard& guard, double seconds) {
  try {
    guard.ask(guard.about, seconds);
  } catch (...) {
    stuck = true;
    throw;
  }
}

// Polls query() until it is ready. Sleeps between polls, briefly compared to a step.
void wait_guarded(const WaitGuard& guard, auto query) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kAsking{100};
  const auto begin = Clock::now();
  auto asked = begin;
  cudaError_t status = cudaSuccess;
  while ((status = query()) == cudaErrorNotReady) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (const auto now = Clock::now(); now - asked > kAsking)
      ask_guard(guard, std::chrono::duration<double>(now - begin).count()), asked = now;
  }
  ok(status);
}

}  // namespace

void finish_lane(CudaLane& lane) {
  if (lane.guard.ask == nullptr) return ok(cudaStreamSynchronize(lane.stream));
  wait_guarded(lane.guard, [&] { return cudaStreamQuery(lane.stream); });
}

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
  cudaEventRecord(timer.end, lane.stream);  // an error persists, and collect_timers() reports it
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

namespace {

// False if CUDA has not as much memory as was asked for.
bool is_allocated(cudaError_t status, std::source_location at = std::source_location::current()) {
  if (status != cudaErrorMemoryAllocation) return ok(status, at), true;
  (void)cudaGetLastError();  // or the next call would report it
  return false;
}

}  // namespace

std::byte* allocate_on_gpu(int64_t bytes) {
  void* memory = nullptr;
  if (!is_allocated(cudaMalloc(&memory, static_cast<size_t>(bytes)))) return nullptr;
  ok(cudaMemset(memory, 0, static_cast<size_t>(bytes)));
  ok(cudaDeviceSynchronize());
  return static_cast<std::byte*>(memory);
}

void free_on_gpu(std::byte* memory) noexcept {
  if (stuck) return;
  cudaDeviceSynchronize();
  cudaFree(memory);
}

std::byte* allocate_pinned(int64_t bytes) {
  void* memory = nullptr;
  if (!is_allocated(cudaMallocHost(&memory, static_cast<size_t>(bytes)))) return nullptr;
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

void free_pinned(std::byte* memory) noexcept {
  if (!stuck) cudaFreeHost(memory);
}

struct CudaMark {
  cudaEvent_t event = nullptr;
  int device = 0;
  WaitGuard guard;  // of the lane
};

CudaMark* open_mark() {
  auto mark = std::make_unique<CudaMark>();
  ok(cudaGetDevice(&mark->device));
  ok(cudaEventCreateWithFlags(&mark->event, cudaEventDisableTiming | cudaEventBlockingSync));
  return mark.release();
}

void close_mark(CudaMark* mark) noexcept {
  const std::unique_ptr<CudaMark> owned(mark);
  if (mark == nullptr || stuck) return;
  cudaEventSynchronize(mark->event);  // memory that is copied to or from may be freed next
  cudaEventDestroy(mark->event);
}

void set_mark(CudaMark& mark, CudaLane& lane) {
  mark.guard = lane.guard;
  ok(cudaEventRecord(mark.event, lane.stream));
}

void wait_for_mark(CudaMark& mark) {
  ok(cudaSetDevice(mark.device));  // the thread may have no device yet
  if (mark.guard.ask == nullptr) return ok(cudaEventSynchronize(mark.event));
  wait_guarded(mark.guard, [&] { return cudaEventQuery(mark.event); });
}

struct CudaGraph {
  cudaGraphExec_t exec = nullptr;
  std::vector<const std::byte*> scratch;  // scratch memory of each lane
};

namespace {

// Orders each other lane after the first; or the first after each other.
void fork(std::span<CudaLane* const> lanes) {
  const uint64_t moment = record_moment(*lanes.front());
  for (CudaLane* const lane : lanes.subspan(1)) wait_for_moment(*lane, *lanes.front(), moment);
}
void join(std::span<CudaLane* const> lanes) {
  for (CudaLane* const lane : lanes.subspan(1)) wait_for_moment(*lanes.front(), *lane, record_moment(*lane));
}
void pass_all(std::span<CudaLane* const> lanes) {
  for (CudaLane* const lane : lanes) lane->passed = lane->moments;
}

}  // namespace

void begin_capture(std::span<CudaLane* const> lanes) {
  join(lanes);
  ok(cudaStreamBeginCapture(lanes.front()->stream, cudaStreamCaptureModeThreadLocal));
  pass_all(lanes);
  fork(lanes);
}

CudaGraph* end_capture(std::span<CudaLane* const> lanes) {
  join(lanes);
  cudaGraph_t recorded = nullptr;
  ok(cudaStreamEndCapture(lanes.front()->stream, &recorded));
  auto graph = std::make_unique<CudaGraph>();
  const cudaError_t instantiated = cudaGraphInstantiateWithFlags(&graph->exec, recorded, 0);
  ok(cudaGraphDestroy(recorded));
  ok(instantiated);
  for (const CudaLane* const lane : lanes) graph->scratch.push_back(lane->scratch);
  pass_all(lanes);
  return graph.release();
}

void abandon_capture(std::span<CudaLane* const> lanes) noexcept {
  cudaGraph_t recorded = nullptr;
  cudaStreamEndCapture(lanes.front()->stream, &recorded);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  pass_all(lanes);
}

void launch_graph(CudaGraph& graph, std::span<CudaLane* const> lanes) {
  join(lanes);
  ok(cudaGraphLaunch(graph.exec, lanes.front()->stream));
  pass_all(lanes);
  fork(lanes);
}

bool still_fits(const CudaGraph& graph, std::span<CudaLane* const> lanes) {
  for (size_t i = 0; i < lanes.size(); ++i)
    if (lanes[i]->scratch != graph.scratch[i]) return false;
  return true;
}

void close_graph(CudaGraph* graph) noexcept {
  const std::unique_ptr<CudaGraph> owned(graph);
  if (graph == nullptr || stuck) return;
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(graph->exec);
}

void copy_bytes(CudaLane& lane, void* to, const void* from, int64_t bytes) {
  ok(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, lane.stream));
}

cudaStream_t stream_of(CudaLane& lane) { return lane.stream; }

// Allocated and freed in the lane's order, so neither the host nor another lane waits. A lane may
// be waiting for a message that another rank sends only once this one continues.
std::byte* scratch(CudaLane& lane, int64_t bytes) {
  if (bytes <= lane.scratch_bytes) return lane.scratch;
  lane.ledger->allocate(bytes - lane.scratch_bytes, "scratch of a CUDA lane");
  if (lane.scratch != nullptr) ok(cudaFreeAsync(std::exchange(lane.scratch, nullptr), lane.stream));
  lane.scratch_bytes = 0;
  void* memory = nullptr;
  require(is_allocated(cudaMallocAsync(&memory, static_cast<size_t>(bytes), lane.stream)),
          text("out of memory: ", bytes, " bytes of the GPU for scratch of a CUDA lane", kLessOnGpu));
  lane.scratch = static_cast<std::byte*>(memory), lane.scratch_bytes = bytes;
  return lane.scratch;
}

int current_gpu() {
  int device = 0;
  ok(cudaGetDevice(&device));
  return device;
}

int multiprocessors() {
  static const int count = [] {
    int found = 0;
    ok(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, current_gpu()));
    return found;
  }();
  return count;
}

int64_t most_shared_bytes() {
  int bytes = 0;
  ok(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_gpu()));
  return bytes;
}

int gpu_generation() {
  int major = 0;
  ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current_gpu()));
  return major;
}

}  // namespace trireme
