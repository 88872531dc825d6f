// Matrix products by cuBLASLt, behind this one function: cublas.cu has it; the emulation computes it in double.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace trireme {

// c = op(a) op(b) [+ bias] [+ c], row-major, dense, as Matmul says.
struct Product {
  void* c;                   // [m, n]
  const void *a, *b, *bias;  // bias [n] or nullptr
  Dtype of_c, of_inputs;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};
void multiply(const Cuda& cuda, const Product& product);

}  // namespace trireme
