// Replaces cudnn.cpp in a build without cuDNN's header.
#include "kernels/cuda/fused_attention.h"
#include "kernels/cuda_facts.h"

namespace trireme {
namespace {

[[noreturn]] void refuse() { throw Error("built without cuDNN"); }

}  // namespace

FusedFacts fused_attention_facts() { return {.verdict = "built without cuDNN"}; }
std::string fused_refusal(const AttentionShape&) { return "built without cuDNN"; }
void fused_attention(const Cuda&, const AttentionShape&, const AttentionForward&) { refuse(); }
void fused_attention(const Cuda&, const AttentionShape&, const AttentionBackward&) { refuse(); }

}  // namespace trireme
