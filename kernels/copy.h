// Copies tensors from one place to another: batches to a GPU, results and checkpoints back.
#pragma once

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace trireme {

// to = from, of equal dtype and size, in the order of the stream. One of them is on the stream's
// place; the other may be on Place::cpu. The caller keeps host memory unchanged until the stream
// has finished: finish().
void copy(Stream& stream, const Tensor& to, const Tensor& from, std::source_location at = std::source_location::current());

}  // namespace trireme
