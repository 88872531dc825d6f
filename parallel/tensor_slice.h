// TensorSlice: this rank's piece of a named global tensor. Checkpoints, optimizers and exports work
// with it.
#pragma once

#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace trireme {

struct TensorSlice {
  std::string name;                   // "layers.3.attention.q": unique in the model
  std::vector<int64_t> global_shape;  // of the whole tensor
  std::vector<int64_t> offset;        // of the piece's first element; same length
  Tensor local;                       // the piece
};

// Elements [begin, begin + local.size()) of a tensor `name` of 1 or 2 dims, stored flat in `local`,
// as rectangular slices: part of a row, whole rows, part of a row.
std::vector<TensorSlice> flat_slices(const std::string& name, const std::vector<int64_t>& shape, int64_t begin, Tensor local);

}  // namespace trireme
