// c = op(a) op(b) [+ bias] [+ c]: every matrix product of the model. Sums are f32; for 8-bit
// operands a GPU's tensor cores keep less precision.
//
// A product can fuse an op that reads its results, or one that needs its operand anyway:
//   pre_activation = op(a) op(b) + bias,  c = gelu(pre_activation)           of the unrounded sums
//   c = op(a) op(b) * gelu'(gelu_input)
//   sums += the sums of op(a)'s rows: with a weight's gradient, that of its bias
// 8-bit operands stand for a_scale a and b_scale b: see ops/quantize.h. On a GPU their dims are
// multiples of 16.
#pragma once

#include <string>
#include <vector>

#include "kernels/run.h"

namespace trireme {

// So many rows times a weight, c = a b^T, take about as long on a CPU as reading the weight, and each has the bits that it has
// alone.
inline constexpr int64_t kFewRows = 16;

struct Matmul {
  static constexpr auto name = "matmul";
  Tensor c;                 // out  [M, N]; with `accumulate` updated in place
  Tensor a;                 // in   [M, K], or [K, M] when transpose_a
  Tensor b;                 // in   [K, N], or [N, K] when transpose_b
  Tensor bias{};            // in   [N] f32, optional. With bf16 c on CUDA it is rounded to bf16
  Tensor pre_activation{};  // out  [M, N], optional; the dtype of c
  Tensor gelu_input{};      // in   [M, N], optional; the dtype of c; not c itself
  Tensor sums{};            // add  [M] f32, optional; with transpose_a
  Tensor a_scale{};         // in   [1] f32, if a and b are 8-bit
  Tensor b_scale{};         // in   [1] f32
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =

  int64_t m() const { return transpose_a ? a.dim(1) : a.dim(0); }
  int64_t k() const { return transpose_a ? a.dim(0) : a.dim(1); }
  int64_t n() const { return transpose_b ? b.dim(0) : b.dim(1); }
  double flops() const { return 2.0 * static_cast<double>(m()) * static_cast<double>(n()) * static_cast<double>(k()); }

  ProductShape shape() const {
    return {.m = m(),
            .n = n(),
            .k = k(),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate,
            .bias = bias.present(),
            .pre_activation = pre_activation.present(),
            .gelu_input = gelu_input.present(),
            .sums = sums.present(),
            .wide = !accumulate && c.dtype() == Dtype::f32 && a.dtype() != Dtype::f32,
            .bits8 = of_8_bits() ? std::optional(a.dtype()) : std::nullopt};
  }

  void visit(auto& t) const {
    accumulate ? t.add(c) : t.out(c);
    t.out(pre_activation), t.add(sums);
    t.in(a, b, bias, gelu_input, a_scale, b_scale);
  }
  bool of_8_bits() const { return is_float8(a.dtype()); }
  // a and b have one dtype, f32 or bf16; c has it too or is f32. 8-bit a and b are summed along their
  // rows, and at most one is e5m2; c is then as for bf16.
  void check() const {
    require(a.dims() == 2 && b.dims() == 2, text("matmul of ", a, " and ", b));
    const Dtype dtype = of_8_bits() ? Dtype::bf16 : a.dtype();
    if (of_8_bits()) {
      require(is_float8(b.dtype()) && (a.dtype() == Dtype::e4m3 || b.dtype() == Dtype::e4m3), text("matmul of ", a, " and ", b));
      require(!transpose_a && transpose_b, text("matmul of ", a, " and ", b, " that does not sum along their rows"));
      expect(a_scale, "a_scale", Dtype::f32, {1}), expect(b_scale, "b_scale", Dtype::f32, {1});
    } else {
      expect_float(a, "a");
      require(b.dtype() == a.dtype() && !a_scale && !b_scale, text("matmul of ", a, " and ", b));
    }
    require(c.dtype() == dtype || c.dtype() == Dtype::f32, text("matmul of ", a, " and ", b, " into ", c));
    require(k() == (transpose_b ? b.dim(1) : b.dim(0)), text("matmul of ", a, " and ", b));
    expect(c, "c", {m(), n()});
    if (bias) expect(bias, "bias", Dtype::f32, {n()});
    if (pre_activation) expect(pre_activation, "pre_activation", c.dtype(), {m(), n()});
    if (gelu_input) expect(gelu_input, "gelu_input", c.dtype(), {m(), n()});
    if (sums) expect(sums, "sums", Dtype::f32, {m()});
    require((pre_activation.present() ? 1 : 0) + (gelu_input.present() ? 1 : 0) + (sums.present() ? 1 : 0) <= 1,
            text("a product can fuse only one of pre_activation, gelu_input and sums"));
    require(!(accumulate && (pre_activation || gelu_input)), text("a product that accumulates cannot fuse gelu"));
    require(!gelu_input || !bias, text("a product cannot fuse both gelu's gradient and a bias"));
    // cuBLASLt writes parts of c before it has read all of gelu_input: seen with version 13.1.
    require(!gelu_input || gelu_input.data() == nullptr || gelu_input.data() != c.data(),
            text("a product writes over its gelu_input"));
    require(!sums || transpose_a, text("sums need transpose_a"));
  }
};
void launch(const Cpu&, const Matmul&);
void launch(const Cuda&, const Matmul&);

// For a library's products on CUDA: names of the algorithms that it knows for this product, at most
// `most`, its recommendation first. A name is valid for the same version and kind of GPU. Empty if
// it does not support the product.
std::vector<std::string> product_algorithms(const Matmul& op, int most);
// Selects this algorithm for all later products of this shape. Returns false, without effect, if
// the name is unknown.
bool prefer_algorithm(const Matmul& op, const std::string& algorithm);
// The algorithm of a fused product that runs as a plain one, and the other op after it.
inline constexpr auto kApart = "apart";
std::string product_library();  // name and version

}  // namespace trireme
