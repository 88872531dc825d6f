#include "model/int8_weight.h"

namespace trireme {

Tensor take_int8(Arena& arena, int64_t rows, int64_t cols) {
  const Tensor w = arena.take(Dtype::i8, {rows, cols}), scales = arena.take(Dtype::f32, {rows});
  require(scales.data() == scales_of(w).data(), text("scales of ", w, " that do not follow it"));
  return w;
}

Tensor scales_of(const Tensor& w) {
  const int64_t after = (w.bytes() + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
  std::byte* const begin = w.data() == nullptr ? nullptr : static_cast<std::byte*>(w.data()) + after;
  return {begin, Dtype::f32, w.place(), {w.dim(0)}};
}

}  // namespace trireme
