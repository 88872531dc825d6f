// Matrix products by cuBLASLt, behind this one function: cublas.cpp has it; the emulation computes it in double.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/host.h"

namespace trireme {

// c = op(a) op(b) [+ bias] [+ c], row-major, dense, as Matmul says, with what it takes along.
struct Product {
  void* c;                   // [m, n]
  const void *a, *b, *bias;  // bias [n] or nullptr
  Dtype of_c, of_a, of_b, of_bias;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  void* pre_activation = nullptr;    // [m, n]
  const void* gelu_input = nullptr;  // [m, n]; c may be it
  float* sums = nullptr;             // [m], written
  const float *a_scale = nullptr, *b_scale = nullptr;
};

// What the library takes of the lane's scratch memory, at its beginning.
constexpr int64_t kProductWorkspace = 32 << 20;

// False, and nothing is done: what the product is to take along is not offered for its shape.
bool multiply(const Cuda& cuda, const Product& product);

// As product_algorithms() and prefer_algorithm() in ops/matmul.h.
std::vector<std::string> algorithms(const Product& product, int most);
bool prefer(const Product& product, const std::string& algorithm);
}  // namespace trireme
