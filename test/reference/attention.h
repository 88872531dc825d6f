// Specification of kernels/ops/attention.h in double precision.
#pragma once

#include "test/reference/compare.h"

namespace trireme::reference {

struct AttentionDims {
  int64_t rows, queries, keys, heads, kv_heads, head_size;  // B, T, S, H, K, D
  int64_t window = 0;
  std::vector<int64_t> document_start{};  // [B, T] or empty
  double scale = 0.25;

  int64_t queries_size() const { return rows * queries * heads * head_size; }
  int64_t keys_size() const { return rows * keys * kv_heads * head_size; }
  bool sees(int64_t row, int64_t query, int64_t key) const;
};

struct AttentionResult {
  Doubles out, lse;
};
AttentionResult attention(const AttentionDims& shape, const Doubles& q, const Doubles& k, const Doubles& v);

struct AttentionGradients {
  Doubles dq, dk, dv;
};
AttentionGradients attention_backward(const AttentionDims& shape, const Doubles& dout, const Doubles& q, const Doubles& k,
                                      const Doubles& v);

}  // namespace trireme::reference
