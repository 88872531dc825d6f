// The shapes of ops that have several kernels of different speed. Each such op gives its own with shape(); the door counts them,
// the plan lists them, and autotuning chooses by them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "kernels/tensor.h"

namespace trireme {

// A matrix product, as the op Matmul has it.
struct ProductShape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t count = 1;                                                            // how often a step computes it
  bool bias = false, pre_activation = false, gelu_input = false, sums = false;  // what it takes along
  bool wide = false;                                                            // c is f32 though a and b are not
  std::optional<Dtype> bits8{};  // a has these 8 bits and b e4m3's, whatever dtype the rest has
  Dtype result(Dtype dtype) const { return accumulate || wide ? Dtype::f32 : dtype; }
  double flops() const { return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  auto operator<=>(const ProductShape&) const = default;
};

// An attention of bf16, each row one document, as many queries as keys.
struct AttentionShape {
  bool backward = false;
  int64_t rows = 0, tokens = 0, heads = 0, kv_heads = 0, head_size = 0, window = 0;  // B, T, H, K, D; window 0: none
  auto operator<=>(const AttentionShape&) const = default;

  // Its key in AttentionChoices: "attention_backward B 4 T 2048 H 32 K 8 D 128 window 0".
  std::string words() const {
    const auto count = [](const char* name, int64_t n) { return name + std::to_string(n); };
    return (backward ? "attention_backward" : "attention") + count(" B ", rows) + count(" T ", tokens) + count(" H ", heads) +
           count(" K ", kv_heads) + count(" D ", head_size) + count(" window ", window);
  }
};

using OpShape = std::variant<ProductShape, AttentionShape>;

// By AttentionShape::words(): "cudnn" or "ours". What is not in it is done by our kernels.
using AttentionChoices = std::map<std::string, std::string>;

}  // namespace trireme
