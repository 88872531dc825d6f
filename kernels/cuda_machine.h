// What the files of kernels/ above the back-ends ask of CUDA: lanes, their moments, memory, copies. Answered by
// kernels/cuda/machine.cu; in a build without CUDA by cuda_absent.cpp, which refuses. Errors of earlier work are thrown by any of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;

namespace trireme {

class Ledger;

// Which GPU this thread uses from here on: number `number` of those that this process sees, counted around; where there is none,
// nothing.
void use_gpu(int number);

// A CUDA stream with the events that mark its moments, and scratch memory for the kernels of this lane, counted by the ledger.
struct CudaLane;
CudaLane* open_cuda_lane(Ledger& ledger);
void close_cuda_lane(CudaLane* lane) noexcept;
int64_t scratch_bytes(const CudaLane& lane);
// Scratch memory of the lane: what it holds lasts until the next call. At a multiple of 256.
std::byte* scratch(CudaLane& lane, int64_t bytes);
CUstream_st* stream_of(CudaLane& lane);  // CUDA's own handle

// A moment of `lane`: all that it was handed before. Moments count up from 1.
uint64_t record_moment(CudaLane& lane);
// What `lane` is handed from here on begins after that moment of `other`.
void wait_for_moment(CudaLane& lane, CudaLane& other, uint64_t moment);
// The host waits until all that the lane was handed is done.
void finish_lane(CudaLane& lane);

// Asked by a host that waits for a lane, several times a second, with the seconds that it has waited: throws where it is in vain.
struct WaitGuard {
  void (*ask)(const void* about, double seconds) = nullptr;
  const void* about = nullptr;
};
void guard_waits(CudaLane& lane, WaitGuard guard);

// For NVIDIA's profilers: what is handed over between the two goes by this name. They nest.
void begin_range(const char* name);
void end_range();

// Of benchmarks: the seconds that the lane spends on what it is handed between the two are added to *seconds by collect_timers(),
// which waits for it.
void begin_timer(CudaLane& lane);
void end_timer(CudaLane& lane, double* seconds) noexcept;
void collect_timers(CudaLane& lane);

std::byte* allocate_on_gpu(int64_t bytes);  // zeros
void free_on_gpu(std::byte* memory) noexcept;
// Of the host, pinned, which the GPU's kernels reach at the same address over their bus; zeros.
std::byte* allocate_pinned(int64_t bytes);
void free_pinned(std::byte* memory) noexcept;

// A moment of a lane that the host waits for, however much the lane is handed afterwards.
struct CudaMark;
CudaMark* open_mark();
void close_mark(CudaMark* mark) noexcept;
void set_mark(CudaMark& mark, CudaLane& lane);
void wait_for_mark(CudaMark& mark);  // at once where it was never set

// What the lanes are handed between begin_capture and end_capture is recorded and not executed. The first of them is the one in
// whose order the graph is launched; the others are through before it begins and go on after it. Moments from before count as
// passed, those recorded in it as passed once it was launched.
struct CudaGraph;
void begin_capture(std::span<CudaLane* const> lanes);
CudaGraph* end_capture(std::span<CudaLane* const> lanes);
void abandon_capture(std::span<CudaLane* const> lanes) noexcept;
void launch_graph(CudaGraph& graph, std::span<CudaLane* const> lanes);
bool still_fits(const CudaGraph& graph, std::span<CudaLane* const> lanes);  // the lanes' scratch memory is where it was
void close_graph(CudaGraph* graph) noexcept;

// In the lane's order. Memory of the host must stay as it is until the lane is through.
void copy_bytes(CudaLane& lane, void* to, const void* from, int64_t bytes);

}  // namespace trireme
