// CUDA services for the files of kernels/ above the back-ends: lanes, their moments, memory,
// copies. Implemented by kernels/cuda/machine.cu; in a build without CUDA by cuda_absent.cpp, which
// refuses. Any of them may throw errors of earlier work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

struct CUstream_st;

namespace trireme {

class Ledger;

// Selects this thread's GPU: number `number`, modulo the visible ones. Does nothing if there is
// none.
void use_gpu(int number);

// Address of this thread's GPU on the PCI bus, "0000:1b:00.0"; "" if unknown.
std::string gpu_bus();

// Name of this thread's GPU among all GPUs, in hexadecimal digits. A GPU's number depends on those that a process sees.
std::string gpu_uuid();

// Bytes of this thread's GPU: those that nobody has taken, and all.
struct GpuMemory {
  int64_t free = 0, total = 0;
};
GpuMemory gpu_memory();

// A lane: a CUDA stream with the events that mark its moments, and scratch memory for its kernels,
// counted by the ledger.
struct CudaLane;
CudaLane* open_cuda_lane(Ledger& ledger);
void close_cuda_lane(CudaLane* lane) noexcept;
int64_t scratch_bytes(const CudaLane& lane);
// Scratch memory of the lane, aligned to 256 bytes. Its contents last until the next call.
std::byte* scratch(CudaLane& lane, int64_t bytes);
CUstream_st* stream_of(CudaLane& lane);  // CUDA's own handle

// A moment of `lane`: all work enqueued before. Moments count up from 1.
uint64_t record_moment(CudaLane& lane);
// Makes later work of `lane` wait for that moment of `other`.
void wait_for_moment(CudaLane& lane, CudaLane& other, uint64_t moment);
// Blocks the host until all enqueued work of the lane is done.
void finish_lane(CudaLane& lane);

// Called by a host that waits for a lane, several times a second, with the seconds waited so far.
// Throws if the wait is in vain.
struct WaitGuard {
  void (*ask)(const void* about, double seconds) = nullptr;
  const void* about = nullptr;
};
void guard_waits(CudaLane& lane, WaitGuard guard);
// True once a guard has thrown. Work of lanes may then never end, so nothing waits for it or frees what it uses: the process ends.
bool gpu_is_stuck() noexcept;

// Names a range of enqueued work for NVIDIA's profilers. Ranges nest.
void begin_range(const char* name);
void end_range();

// For benchmarks: times the lane's work between the two calls. collect_timers() waits for the lane
// and adds the seconds to *seconds.
void begin_timer(CudaLane& lane);
void end_timer(CudaLane& lane, double* seconds) noexcept;
void collect_timers(CudaLane& lane);

std::byte* allocate_on_gpu(int64_t bytes);     // zeros; nullptr if the GPU has less left
void free_on_gpu(std::byte* memory) noexcept;  // waits for all lanes: their kernels may use the memory
// Functions that take the place of these two.
struct GpuAllocator {
  std::byte* (*allocate)(int64_t bytes) = allocate_on_gpu;
  void (*free)(std::byte* memory) noexcept = free_on_gpu;
};
// Pinned host memory, zeroed, which the GPU's kernels access at the same address over their bus. nullptr if the machine has less.
std::byte* allocate_pinned(int64_t bytes);
void free_pinned(std::byte* memory) noexcept;
// Remedies, for messages about memory that is missing.
inline constexpr auto kLessOnGpu = "; lower train.microbatch, set train.recompute to full, or use more GPUs";
inline constexpr auto kLessPinned = "; free memory of this machine, or set train.offload to none or checkpoint.async to false";

// Lets kernels access memory that its owner has mapped, for example shared with other processes. Returns
// its address for them; nullptr if the driver refuses. Close it before the memory is unmapped.
std::byte* open_to_gpu(std::byte* memory, int64_t bytes);
void close_to_gpu(std::byte* memory) noexcept;
// Enqueues an addition of 1 to 8 bytes at an address from open_to_gpu(), also where the lane is captured.
void count_on_gpu(CudaLane& lane, std::byte* counter);

// A moment of a lane that the host can wait for, regardless of later work.
struct CudaMark;
CudaMark* open_mark();
void close_mark(CudaMark* mark) noexcept;
void set_mark(CudaMark& mark, CudaLane& lane);
void wait_for_mark(CudaMark& mark);  // returns at once if it was never set

// Work that lanes receive between begin_capture and end_capture is recorded, not executed. The
// graph is launched in the order of the first lane; the others finish before it begins and continue
// after it. Moments from before count as passed; recorded moments have passed once the graph was
// launched.
struct CudaGraph;
void begin_capture(std::span<CudaLane* const> lanes);
CudaGraph* end_capture(std::span<CudaLane* const> lanes);
void abandon_capture(std::span<CudaLane* const> lanes) noexcept;
void launch_graph(CudaGraph& graph, std::span<CudaLane* const> lanes);
bool still_fits(const CudaGraph& graph, std::span<CudaLane* const> lanes);  // true if the lanes' scratch memory has not moved
void close_graph(CudaGraph* graph) noexcept;

// Copies in the lane's order. Host memory must not change until the lane has finished.
void copy_bytes(CudaLane& lane, void* to, const void* from, int64_t bytes);

}  // namespace trireme
