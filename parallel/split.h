// NamedShard: a piece of a named global tensor that lives on this rank. What checkpoints, optimizers and exports talk about.
#pragma once

#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace trireme {

struct NamedShard {
  std::string name;                   // "layers.3.attention.q": unique in the model
  std::vector<int64_t> global_shape;  // of the whole tensor
  std::vector<int64_t> offset;        // of the piece's first element in it; same length
  Tensor local;                       // the piece
};

}  // namespace trireme
