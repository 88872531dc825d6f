// Attention by a library's fused kernels: cuDNN's in cudnn.cpp; none in cudnn_absent.cpp; the
// emulation computes it in double. fused_attention_facts() and fused_refusal() report the library
// and the shapes that it supports.
#pragma once

#include "kernels/cuda/host.h"
#include "kernels/ops/attention.h"

namespace trireme {

// The shape must not be refused, and tensors must be aligned to 16 bytes.
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionForward& op);
void fused_attention(const Cuda& cuda, const AttentionShape& shape, const AttentionBackward& op);

}  // namespace trireme
