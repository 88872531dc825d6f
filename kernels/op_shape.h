// Shapes of ops that have several kernels of different speed. Each such op returns its own from
// shape(). The door counts them, the plan lists them, and autotuning chooses by them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "kernels/tensor.h"

namespace trireme {

// Shape of a matrix product, as in the op Matmul.
struct ProductShape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t count = 1;                                                            // number of times in a step
  bool bias = false, pre_activation = false, gelu_input = false, sums = false;  // fused epilogues
  bool wide = false;                                                            // c is f32 but a and b are not
  std::optional<Dtype> bits8{};  // a has this 8-bit dtype and b is e4m3, whatever the other dtype
  bool fused() const { return pre_activation || gelu_input || sums; }
  ProductShape plain() const {  // without what is fused
    ProductShape shape = *this;
    shape.pre_activation = shape.gelu_input = shape.sums = false;
    return shape;
  }
  Dtype result(Dtype dtype) const { return accumulate || wide ? Dtype::f32 : dtype; }
  double flops() const { return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  auto operator<=>(const ProductShape&) const = default;
};

// Shape of a bf16 attention with as many queries as keys.
struct AttentionShape {
  bool backward = false;
  int64_t rows = 0, tokens = 0, heads = 0, kv_heads = 0, head_size = 0, window = 0;  // B, T, H, K, D; window 0: none
  bool documents = false;                                                            // queries see keys of their own document only
  bool together = false;                                                             // queries, keys and values are in one tensor
  auto operator<=>(const AttentionShape&) const = default;
  int64_t row(int64_t of_heads) const {
    return (together ? heads + 2 * kv_heads : of_heads) * head_size;
  }  // elements between tokens

  // Its key in AttentionChoices: "attention_backward B 4 T 2048 H 32 K 8 D 128 window 0".
  std::string words() const {
    const auto count = [](const char* name, int64_t n) { return name + std::to_string(n); };
    return (backward ? "attention_backward" : "attention") + count(" B ", rows) + count(" T ", tokens) + count(" H ", heads) +
           count(" K ", kv_heads) + count(" D ", head_size) + count(" window ", window) + (documents ? " documents" : "") +
           (together ? " together" : "");
  }
};

using OpShape = std::variant<ProductShape, AttentionShape>;

// Kernels by AttentionShape::words(): "cudnn" or "ours". Missing shapes use our kernels.
using AttentionChoices = std::map<std::string, std::string>;

}  // namespace trireme
