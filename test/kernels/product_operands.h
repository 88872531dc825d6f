// ProductOperands: random operands of a matrix product, with what it should give and how closely.
#pragma once

#include <cmath>

#include "kernels/ops/matmul.h"
#include "test/reference/compare.h"
#include "test/reference/matmul.h"

namespace trireme {

// The bias that a product with results of this dtype adds. On a GPU the library's epilogue adds one
// of c's dtype only, and rounds it.
inline HostTensor added_bias(const HostTensor& bias, Dtype out) {
  return tested_place() == Place::cuda ? HostTensor(out, {bias.size()}, bias.values()) : bias;
}

// Random operands of a product, scaled so that c is about 1.
struct ProductOperands {
  reference::Product shape;
  HostTensor a, b, bias;
  ProductOperands(reference::Product s, Dtype dtype, uint64_t key = 1)
      : shape(s),
        a(s.transpose_a ? random_tensor(dtype, {s.k, s.m}, key) : random_tensor(dtype, {s.m, s.k}, key)),
        b(s.transpose_b ? random_tensor(dtype, {s.n, s.k}, key + 1, 1 / std::sqrt(s.k))
                        : random_tensor(dtype, {s.k, s.n}, key + 1, 1 / std::sqrt(s.k))),
        bias(random_tensor(Dtype::f32, {s.n}, key + 2)) {}

  Matmul product(const HostTensor& c) const {
    return {.c = c, .a = a, .b = b, .transpose_a = shape.transpose_a, .transpose_b = shape.transpose_b};
  }
  Doubles wanted() const { return reference::matmul(shape, a.values(), b.values()); }
  Doubles wanted_with_bias(Dtype out) const {
    return reference::matmul(shape, a.values(), b.values(), added_bias(bias, out).values());
  }
};

// f32 sums of k products, whose rounding errors add up like a random walk, and one rounding of the
// result.
inline double bound(const reference::Product& s, Dtype out) {
  return 1.01 * rounding(out) + (4 + 2 * std::sqrt(s.k)) * rounding(Dtype::f32);
}

}  // namespace trireme
