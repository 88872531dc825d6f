// Attention by fused kernels that a library brings: cuDNN's in cudnn.cpp; none in cudnn_absent.cpp; the emulation computes it in
// double. Whether there is one, and whether it takes a shape: fused_attention_facts(), fused_refusal().
#pragma once

#include "kernels/cuda/host.h"
#include "kernels/ops/attention.h"

namespace trireme {

// Of a shape that is not refused, with tensors at multiples of 16 bytes.
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionForward& op);
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionBackward& op);

}  // namespace trireme
