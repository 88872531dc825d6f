// Matrix products with fused epilogues if the library offers them, else with the ops that follow.
#include "kernels/cuda/products.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"
#include "kernels/ops/matmul.h"

namespace trireme {
namespace {

// The only dtype of a bias that the library's epilogue adds to c.
Dtype library_bias(const Matmul& op) { return op.of_8_bits() ? Dtype::bf16 : op.c.dtype(); }

Product plain(const Matmul& op) {
  return {.c = op.c.data(),
          .a = op.a.data(),
          .b = op.b.data(),
          .bias = op.bias ? op.bias.data() : nullptr,
          .of_c = op.c.dtype(),
          .of_a = op.a.dtype(),
          .of_b = op.b.dtype(),
          .of_bias = library_bias(op),
          .m = op.m(),
          .n = op.n(),
          .k = op.k(),
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .accumulate = op.accumulate,
          .a_scale = op.a_scale ? op.a_scale.as<float>() : nullptr,
          .b_scale = op.b_scale ? op.b_scale.as<float>() : nullptr};
}

// Scratch memory after the library's workspace.
std::byte* scratch_behind(const Cuda& cuda, int64_t bytes) {
  return static_cast<std::byte*>(scratch(cuda, kProductWorkspace + bytes)) + kProductWorkspace;
}

Product whole(const Matmul& op, float* sums) {
  Product p = plain(op);
  if (op.pre_activation) p.pre_activation = op.pre_activation.data();
  if (op.gelu_input) p.gelu_input = op.gelu_input.data();
  if (op.sums) p.sums = sums;
  return p;
}

// Whether the library's GELU is precise enough: its tanh has an error of 2^-11, less than the rounding of bf16.
bool fusible(const Matmul& op) { return op.c.dtype() == Dtype::bf16; }

void must_multiply(const Cuda& cuda, const Product& p) {
  require(multiply(cuda, p),
          text("cuBLASLt cannot multiply ", name_of(p.of_a), " ", p.m, " x ", p.k, " by ", name_of(p.of_b), " ", p.k, " x ", p.n));
}

}  // namespace

void launch(const Cuda& cuda, const Matmul& op) {
  if (op.c.size() == 0 || (op.k() == 0 && op.accumulate)) return;
  require(op.k() > 0, text("matmul of ", op.a, " and ", op.b, ": a sum over nothing"));
  if (const Dtype needed = library_bias(op); op.bias && op.bias.dtype() != needed) {
    const Tensor narrow(scratch_behind(cuda, op.n() * bytes_of(needed)), needed, Place::cuda, {op.n()});
    launch(cuda, Cast{.y = narrow, .x = op.bias});
    Matmul same = op;
    same.bias = narrow;
    return launch(cuda, same);
  }
  if (op.sums) {
    const Tensor sums(scratch_behind(cuda, op.m() * 4), Dtype::f32, Place::cuda, {op.m()});
    if (multiply(cuda, whole(op, sums.as<float>()))) return launch(cuda, Add{.y = op.sums, .a = op.sums, .b = sums});
    must_multiply(cuda, plain(op));
    return launch(cuda, BiasBackward{.dbias = op.sums, .dy = op.a});
  }
  if ((op.pre_activation || op.gelu_input) && fusible(op) && multiply(cuda, whole(op, nullptr))) return;
  Product p = plain(op);
  if (op.pre_activation) p.c = op.pre_activation.data();
  if (op.gelu_input) p.c = scratch_behind(cuda, op.c.bytes());
  must_multiply(cuda, p);
  if (op.pre_activation) launch(cuda, GeluForward{.y = op.c, .x = op.pre_activation});
  if (!op.gelu_input) return;
  const Tensor dy(p.c, op.c.dtype(), Place::cuda, {op.m(), op.n()});
  launch(cuda, GeluBackward{.dx = op.c, .dy = dy, .x = op.gelu_input});
}

namespace {

// The product as it will run. The library asks nothing of sums and of a bias in another dtype but their alignment, which is
// that of scratch memory.
Product meant(const Matmul& op) {
  alignas(256) static float in_scratch[1];
  Product p = whole(op, in_scratch);
  if (op.bias && op.bias.dtype() != library_bias(op)) p.bias = in_scratch;
  return p;
}

}  // namespace

std::vector<std::string> product_algorithms(const Matmul& op, int most) { return algorithms(meant(op), most); }
bool prefer_algorithm(const Matmul& op, const std::string& algorithm) { return prefer(meant(op), algorithm); }

}  // namespace trireme
