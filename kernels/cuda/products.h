// Matrix products by cuBLASLt, through one function: cublas.cpp implements it; the emulation
// computes it in double.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/host.h"

namespace trireme {

// c = op(a) op(b) [+ bias] [+ c], row-major, dense, as in Matmul, with the fused epilogues.
struct Product {
  void* c;                   // [m, n]
  const void *a, *b, *bias;  // bias [n] or nullptr
  Dtype of_c, of_a, of_b, of_bias;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  void* pre_activation = nullptr;    // [m, n]
  const void* gelu_input = nullptr;  // [m, n]; not c
  float* sums = nullptr;             // [m], written
  const float *a_scale = nullptr, *b_scale = nullptr;
  bool fused() const { return pre_activation != nullptr || gelu_input != nullptr || sums != nullptr; }
};

// Bytes of the lane's scratch memory, from its beginning, that the library uses.
constexpr int64_t kProductWorkspace = 32 << 20;

// Returns false, without effect, if the library does not offer the fusion for this shape, or kApart is
// preferred for it.
bool multiply(const Cuda& cuda, const Product& product);

// Implement product_algorithms() and prefer_algorithm() of ops/matmul.h.
std::vector<std::string> algorithms(const Product& product, int most);
bool prefer(const Product& product, const std::string& algorithm);
}  // namespace trireme
