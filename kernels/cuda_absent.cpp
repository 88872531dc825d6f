// Replaces kernels/cuda/ in a build without CUDA; CMake adds the launch() of every op.
#include "kernels/cuda_facts.h"
#include "kernels/cuda_machine.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/matmul.h"

namespace trireme {
namespace {

[[noreturn]] void refuse() { throw Error("built without CUDA"); }

}  // namespace

CudaFacts cuda_facts() { return {.verdict = "built without CUDA"}; }
KernelLimits kernel_limits() { refuse(); }
FusedFacts fused_attention_facts() { return {.verdict = "built without CUDA"}; }
std::string fused_refusal(const AttentionShape&) { return "built without CUDA"; }

CudaLane* open_cuda_lane(Ledger&) { refuse(); }
void close_cuda_lane(CudaLane*) noexcept {}
void use_gpu(int) {}
std::string gpu_bus() { return ""; }
std::string gpu_uuid() { refuse(); }
GpuMemory gpu_memory() { refuse(); }
int64_t scratch_bytes(const CudaLane&) { return 0; }
std::byte* scratch(CudaLane&, int64_t) { refuse(); }
CUstream_st* stream_of(CudaLane&) { refuse(); }
uint64_t record_moment(CudaLane&) { refuse(); }
void wait_for_moment(CudaLane&, CudaLane&, uint64_t) { refuse(); }
void finish_lane(CudaLane&) { refuse(); }
void guard_waits(CudaLane&, WaitGuard) { refuse(); }
bool gpu_is_stuck() noexcept { return false; }
void begin_range(const char*) {}
void end_range() {}
void begin_timer(CudaLane&) { refuse(); }
void end_timer(CudaLane&, double*) noexcept {}
void collect_timers(CudaLane&) { refuse(); }
std::byte* allocate_on_gpu(int64_t) { refuse(); }
void free_on_gpu(std::byte*) noexcept {}
std::byte* allocate_pinned(int64_t) { refuse(); }
void free_pinned(std::byte*) noexcept {}
std::byte* open_to_gpu(std::byte*, int64_t) { refuse(); }
void close_to_gpu(std::byte*) noexcept {}
void count_on_gpu(CudaLane&, std::byte*) { refuse(); }
CudaMark* open_mark() { refuse(); }
void close_mark(CudaMark*) noexcept {}
void set_mark(CudaMark&, CudaLane&) { refuse(); }
void wait_for_mark(CudaMark&) { refuse(); }
void begin_capture(std::span<CudaLane* const>) { refuse(); }
CudaGraph* end_capture(std::span<CudaLane* const>) { refuse(); }
void abandon_capture(std::span<CudaLane* const>) noexcept {}
void launch_graph(CudaGraph&, std::span<CudaLane* const>) { refuse(); }
bool still_fits(const CudaGraph&, std::span<CudaLane* const>) { refuse(); }
void close_graph(CudaGraph*) noexcept {}
void copy_bytes(CudaLane&, void*, const void*, int64_t) { refuse(); }
std::vector<std::string> product_algorithms(const Matmul&, int) { refuse(); }
bool prefer_algorithm(const Matmul&, const std::string&) { refuse(); }
std::string product_library() { refuse(); }

}  // namespace trireme
