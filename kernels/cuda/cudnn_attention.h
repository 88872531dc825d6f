// Attention as graphs for cuDNN: forward and a deterministic backward, of some or all heads.
// cuDNN's order of dims is [B, H, T, D]; strides describe ours, [B, T, H, D]. A head of k and v
// that several query heads share is a broadcast.
#pragma once

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/ops/attention.h"

namespace trireme {

// Part of the heads of an attention: those of so many of its key-value heads, one after the other.
struct HeadGroup {
  AttentionShape whole;
  int64_t kv_heads;
  int64_t heads() const { return kv_heads * (whole.heads / whole.kv_heads); }
};

// Ids of a graph's inputs and outputs: a plan runs with a pointer for each. Scalars are passed by
// value, also by pointer.
enum AttentionUid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kRowSums, kScale, kOne, kHidden, kWindow, kStart };

// The graph's descriptor, which g owns.
const Descriptor& forward_graph(CudnnGraph& g, const HeadGroup& s);
const Descriptor& backward_graph(CudnnGraph& g, const HeadGroup& s);

}  // namespace trireme
