// In place of kernels/cuda/ in a build without CUDA.
#include "kernels/cuda_facts.h"
#include "kernels/cuda_machine.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/exact_norm.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/layernorm.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/rmsnorm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/swiglu.h"

namespace trireme {
namespace {

[[noreturn]] void refuse() { throw Error("built without CUDA"); }

}  // namespace

CudaFacts cuda_facts() { return {.verdict = "built without CUDA"}; }
FusedFacts fused_attention_facts() { return {.verdict = "built without CUDA"}; }
std::string fused_refusal(const AttentionProblem&) { return "built without CUDA"; }

CudaLane* open_cuda_lane(Ledger&) { refuse(); }
void close_cuda_lane(CudaLane*) noexcept {}
void use_gpu(int) {}
int64_t scratch_bytes(const CudaLane&) { return 0; }
std::byte* scratch(CudaLane&, int64_t) { refuse(); }
CUstream_st* stream_of(CudaLane&) { refuse(); }
uint64_t record_moment(CudaLane&) { refuse(); }
void wait_for_moment(CudaLane&, CudaLane&, uint64_t) { refuse(); }
void finish_lane(CudaLane&) { refuse(); }
void guard_waits(CudaLane&, WaitGuard) { refuse(); }
void begin_range(const char*) {}
void end_range() {}
void begin_timer(CudaLane&) { refuse(); }
void end_timer(CudaLane&, double*) noexcept {}
void collect_timers(CudaLane&) { refuse(); }
std::byte* allocate_on_gpu(int64_t) { refuse(); }
void free_on_gpu(std::byte*) noexcept {}
std::byte* allocate_pinned(int64_t) { refuse(); }
void free_pinned(std::byte*) noexcept {}
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

void launch(const Cuda&, const SquaredNorm&) { refuse(); }
void launch(const Cuda&, const SquaredNormTable&) { refuse(); }
void launch(const Cuda&, const AdamWSchedule&) { refuse(); }
void launch(const Cuda&, const AdamW&) { refuse(); }
void launch(const Cuda&, const AdamWTable&) { refuse(); }
void launch(const Cuda&, const RoundWeights&) { refuse(); }
void launch(const Cuda&, const AttentionForward&) { refuse(); }
void launch(const Cuda&, const AttentionBackward&) { refuse(); }
void launch(const Cuda&, const CrossEntropyForward&) { refuse(); }
void launch(const Cuda&, const ShardTop&) { refuse(); }
void launch(const Cuda&, const ShardSums&) { refuse(); }
void launch(const Cuda&, const ShardLoss&) { refuse(); }
void launch(const Cuda&, const CrossEntropyBackward&) { refuse(); }
void launch(const Cuda&, const CrossEntropyInPlace&) { refuse(); }
void launch(const Cuda&, const EmbeddingForward&) { refuse(); }
void launch(const Cuda&, const EmbeddingBackward&) { refuse(); }
void launch(const Cuda&, const LargestMagnitude&) { refuse(); }
void launch(const Cuda&, const ExactSquares&) { refuse(); }
void launch(const Cuda&, const SumOfSquares&) { refuse(); }
void launch(const Cuda&, const Fill&) { refuse(); }
void launch(const Cuda&, const Cast&) { refuse(); }
void launch(const Cuda&, const Add&) { refuse(); }
void launch(const Cuda&, const SumParts&) { refuse(); }
void launch(const Cuda&, const TreeAdd&) { refuse(); }
void launch(const Cuda&, const TreeClose&) { refuse(); }
void launch(const Cuda&, const SumInto&) { refuse(); }
void launch(const Cuda&, const BiasBackward&) { refuse(); }
void launch(const Cuda&, const FillNormal&) { refuse(); }
void launch(const Cuda&, const GeluForward&) { refuse(); }
void launch(const Cuda&, const GeluBackward&) { refuse(); }
void launch(const Cuda&, const LayerNormForward&) { refuse(); }
void launch(const Cuda&, const LayerNormBackward&) { refuse(); }
void launch(const Cuda&, const Matmul&) { refuse(); }
void launch(const Cuda&, const Quantize&) { refuse(); }
void launch(const Cuda&, const RmsNormForward&) { refuse(); }
void launch(const Cuda&, const RmsNormBackward&) { refuse(); }
void launch(const Cuda&, const RopeTable&) { refuse(); }
void launch(const Cuda&, const SplitHeadsForward&) { refuse(); }
void launch(const Cuda&, const SplitHeadsBackward&) { refuse(); }
void launch(const Cuda&, const Rotate&) { refuse(); }
void launch(const Cuda&, const SwiGluForward&) { refuse(); }
void launch(const Cuda&, const SwiGluBackward&) { refuse(); }

}  // namespace trireme
