// Declarations shared by the attention kernels.
#pragma once

#include "kernels/cuda/tile.cuh"
#include "kernels/ops/attention.h"

namespace trireme {

struct AttentionSizes {
  int64_t queries, keys, heads, shared, size, window;  // T, S, H, K, D
  int64_t query_row, key_row;                          // elements between tokens: of q and dq, of k, v, dk and dv
  float scale;
  const int32_t* document_start;  // [B, T]
  __device__ int64_t place(int64_t t) const { return t + keys - queries; }
  __device__ int64_t first_seen(int64_t b, int64_t t) const {
    const int64_t first = document_start != nullptr ? document_start[b * queries + t] : 0;
    return window > 0 ? max(first, place(t) - window + 1) : first;
  }
  // The first key that any query from `first` on sees, rounded down to a multiple of `tile`. Documents
  // and windows are ordered, so `first` sees it.
  __device__ int64_t first_tile(int64_t b, int64_t first, int64_t tile) const { return first_seen(b, first) / tile * tile; }
};

// True if tensor cores can be used: bf16, heads of 64 or 128, memory aligned to 16 bytes. See
// attention_sm80.cu and attention_backward_sm80.cu.
bool fits_tensor_cores(const AttentionForward& op);
bool fits_tensor_cores(const AttentionBackward& op);
void attention_on_tensor_cores(const Cuda& cuda, const AttentionForward& op, const AttentionSizes& sizes);
// delta: dout . out, [B, H, T].
void attention_on_tensor_cores(const Cuda& cuda, const AttentionBackward& op, const AttentionSizes& sizes, const float* delta);

}  // namespace trireme
