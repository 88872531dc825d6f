// Tensors from one place to another: batches to a GPU, results and checkpoints back.
#pragma once

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace trireme {

// to = from, of one dtype and as many elements, in the order of the stream, on whose place one of them is; the other may be on
// Place::cpu. Memory of the host must stay as it is until the stream is through: finish().
void copy(Stream& stream, const Tensor& to, const Tensor& from, std::source_location at = std::source_location::current());

}  // namespace trireme
