// An attention as far as the choice of its kernels goes, and the table of such choices.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace trireme {

// Of bf16, each row one document, as many queries as keys.
struct AttentionProblem {
  bool backward = false;
  int64_t rows = 0, tokens = 0, heads = 0, kv_heads = 0, head_size = 0, window = 0;  // B, T, H, K, D; window 0: none
  auto operator<=>(const AttentionProblem&) const = default;

  // Its key in the table: "attention_backward B 4 T 2048 H 32 K 8 D 128 window 0".
  std::string words() const {
    const auto count = [](const char* name, int64_t n) { return name + std::to_string(n); };
    return (backward ? "attention_backward" : "attention") + count(" B ", rows) + count(" T ", tokens) + count(" H ", heads) +
           count(" K ", kv_heads) + count(" D ", head_size) + count(" window ", window);
  }
};

// By AttentionProblem::words(): "cudnn" or "ours". What is not in it is done by our kernels.
using AttentionChoices = std::map<std::string, std::string>;

}  // namespace trireme
