#include "parallel/tensor_slice.h"

#include <algorithm>

namespace trireme {

std::vector<TensorSlice> flat_slices(const std::string& name, const std::vector<int64_t>& shape, int64_t begin, Tensor local) {
  require(shape.size() == 1 || shape.size() == 2, text(name, " has ", shape.size(), " dims"));
  if (shape.size() == 1) return {{.name = name, .global_shape = shape, .offset = {begin}, .local = local}};
  const int64_t cols = shape[1];
  std::vector<TensorSlice> slices;
  for (int64_t at = 0; at < local.size();) {
    const int64_t row = (begin + at) / cols, col = (begin + at) % cols, left = local.size() - at;
    const bool whole = col == 0 && left >= cols;
    const int64_t rows = whole ? left / cols : 1, count = whole ? rows * cols : std::min(cols - col, left);
    slices.push_back({.name = name,
                      .global_shape = shape,
                      .offset = {row, col},
                      .local = local.slice(at, at + count).view({rows, count / rows})});
    at += count;
  }
  return slices;
}

}  // namespace trireme
