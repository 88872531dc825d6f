// Stochastic rounding to bf16: up or down, with probabilities that make the mean the value itself.
// See Gupta et al., "Deep learning with limited numerical precision", 2015; for master weights,
// Zamirai et al., "Revisiting BFloat16 training", 2020. The random bits are a pure function of the
// tensor's key, the element's index in the whole model's tensor, and the step. So the result is the
// same on any rank and for any number of threads.
#pragma once

#include <bit>

#include "base/key.h"
#include "base/philox.h"
#include "kernels/tensor.h"

namespace trireme {

enum class Rounding { nearest, stochastic };

template <>
struct Names<Rounding> {
  static constexpr std::array<std::string_view, 2> words{"nearest", "stochastic"};
};

// Place of elements in a tensor of the whole model: from element `first` on of a piece. The piece
// is `cols` columns of a tensor with `stride` columns, beginning at its element `origin`.
struct WholeTensor {
  uint64_t key = 0;
  int64_t first = 0, origin = 0, cols = 1, stride = 1;
};

// 16 random bits for each of consecutive elements. Eight elements share a call of philox.
class RandomBits {
 public:
  constexpr RandomBits(const WholeTensor& whole, int64_t element, int64_t step) : whole_(whole), step_(step) {
    const int64_t at = whole.first + element, row = whole.cols == whole.stride ? 0 : at / whole.cols;
    col_ = at - row * whole.cols;
    index_ = whole.origin + row * whole.stride + col_;
    draw();
  }
  constexpr uint32_t next() {
    const uint64_t half = (index_ & 4) == 0 ? low_ : high_;
    const auto bits = static_cast<uint32_t>(half >> 16 * (index_ & 3)) & 0xffffu;
    const int64_t before = index_++;
    if (++col_ == whole_.cols && whole_.cols != whole_.stride) col_ = 0, index_ += whole_.stride - whole_.cols;
    if (index_ >> 3 != before >> 3) draw();
    return bits;
  }

 private:
  constexpr void draw() {
    const auto c = philox(whole_.key, static_cast<uint64_t>(index_ >> 3), static_cast<uint64_t>(step_));
    low_ = (static_cast<uint64_t>(c[1]) << 32) | c[0], high_ = (static_cast<uint64_t>(c[3]) << 32) | c[2];
  }

  WholeTensor whole_;
  int64_t step_, col_ = 0, index_ = 0;
  uint64_t low_ = 0, high_ = 0;
};

// `random` has 16 bits. Exact values and NaN stay; finite values stay finite, at most the largest
// bf16.
constexpr Bf16 rounded_stochastically(float x, uint32_t random) {
  constexpr uint32_t kInfinity = 0x7f800000u, kLargest = 0x7f7f0000u;
  const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = u & 0x7fffffffu;
  Bf16 y;
  y.bits = static_cast<uint16_t>((magnitude < kLargest ? u + random : u) >> 16);
  if (magnitude > kInfinity) y.bits = static_cast<uint16_t>(y.bits | 0x40u);
  return y;
}

}  // namespace trireme
