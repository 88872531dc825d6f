// The stand-in for cuDNN refuses mistakes that the library would, each with its reason; and attention
// runs in as many groups of heads as its workspace asks for.
#include <cudnn.h>

#include <array>
#include <cstdlib>
#include <functional>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda_facts.h"
#include "kernels/device.h"
#include "kernels/tune/attention_choice.h"
#include "test/catch.h"

extern "C" int64_t trireme_standin_executions();

namespace trireme {
namespace {

const HeadGroup kWhole{.whole = {.rows = 1, .tokens = 128, .heads = 4, .kv_heads = 2, .head_size = 16}, .kv_heads = 2};

std::string said(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

Layout of(Four dims) { return dense(dims); }
constexpr auto kF32 = CUDNN_DATA_FLOAT;

}  // namespace

TEST_CASE("the stand-in for cuDNN takes attention as it is meant", "[cudnn]") {
  CudnnGraph forward, backward;
  forward_graph(forward, kWhole);
  backward_graph(backward, kWhole);
}

TEST_CASE("the stand-in for cuDNN refuses each of the mistakes that the library refuses", "[cudnn]") {
  using G = CudnnGraph;
  struct Mistake {
    void (*make)(G&);
    const char* words;
  };
  const std::vector<Mistake> mistakes{
      {[](G& g) {
         g.matmul(g.inner(kF32, of({1, 2, 8, 8})), g.outer(1, kF32, of({1, 2, 8, 4})), g.outer(2, kF32, of({1, 2, 8, 4})));
       },
       "a product of tensor 1 [1, 2, 8, 4] and tensor 2 [1, 2, 8, 4] is not tensor 100 [1, 2, 8, 8]"},
      {[](G& g) {
         g.matmul(g.inner(kF32, of({1, 4, 8, 8})), g.outer(1, kF32, of({1, 4, 8, 4})), g.outer(2, kF32, of({1, 3, 4, 8})));
       },
       "heads of a product that do not divide"},
      {[](G& g) {
         g.outer(1, kF32, {{1, 2, 8, 4}, {64, 32, 0, 1}});
       },
       "with a dim or stride below 1"},
      {[](G& g) {
         g.pointwise({CUDNN_POINTWISE_ADD}, g.inner(kF32, of({1, 1, 2, 2})), g.outer(1, kF32, of({1, 1, 2, 2})));
       },
       "a second operand is missing"},
      {[](G& g) {
         g.f32(CUDNN_POINTWISE_EXP, g.outer(1, kF32, of({1, 1, 2, 2})), g.outer(2, kF32, of({1, 1, 2, 2})));
       },
       "a second operand of a function of one"},
      {[](G& g) {
         g.f32(CUDNN_POINTWISE_MUL, g.outer(1, kF32, of({1, 1, 2, 2})), g.outer(2, kF32, of({1, 1, 2, 3})));
       },
       "tensor 2 [1, 1, 2, 3] does not fit"},
      {[](G& g) {
         const Value x = g.outer(1, kF32, of({1, 1, 2, 2}));
         g.pointwise({CUDNN_POINTWISE_CMP_GE}, g.inner(kF32, of({1, 1, 2, 2})), x, x);
       },
       "comparisons, and they alone, have boolean results"},
      {[](G& g) {
         const Value x = g.outer(1, kF32, of({1, 1, 2, 2}));
         g.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, g.inner(kF32, of({1, 1, 2, 2})), x, x, x);
       },
       "a condition that is not boolean"},
      {[](G& g) {
         g.pointwise({CUDNN_POINTWISE_GEN_INDEX}, g.inner(CUDNN_DATA_INT32, of({1, 1, 2, 2})), g.outer(1, kF32, of({1, 1, 2, 2})));
       },
       "an index without its axis"},
      {[](G& g) {
         g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.inner(kF32, of({1, 3, 2, 2})), g.outer(1, kF32, of({1, 4, 2, 2})));
       },
       "sums of tensor 1 [1, 4, 2, 2] are not tensor 100 [1, 3, 2, 2]"},
      {[](G& g) {
         g.f32(CUDNN_POINTWISE_EXP, g.inner(kF32, of({1, 1, 2, 2})));
         g.finish();
       },
       "tensor 100 [1, 1, 2, 2] is read before an operation writes it"},
      {[](G& g) {
         g.f32(CUDNN_POINTWISE_EXP, g.outer(1, kF32, of({1, 1, 2, 2})));
         g.finish();
       },
       "is inner and never read"},
      {[](G& g) {
         const Value x = g.outer(1, kF32, of({1, 1, 2, 2})), y = g.outer(1, CUDNN_DATA_BFLOAT16, of({1, 1, 2, 2}));
         g.pointwise({CUDNN_POINTWISE_MUL}, g.outer(2, kF32, of({1, 1, 2, 2})), x, y);
         g.finish();
       },
       "has the id of another tensor"},
      {[](G&) {
         const Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
         d.finish();
       },
       "is missing"},
      {[](G&) {
         const Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
         d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_INT64, int64_t{0});
       },
       "has another type"},
      {[](G&) {
         const Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
         d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
       },
       "is not one of descriptor type"},
      {[](G&) {
         const Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
         d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kF32);
         d.finish();
         d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kF32);
       },
       "is set after the descriptor was finalized"}};
  for (const Mistake& mistake : mistakes) {
    G graph;
    CHECK_THAT(said([&] { mistake.make(graph); }), ContainsSubstring(mistake.words));
  }
}

TEST_CASE("attention whose workspace is too large runs in groups of heads, to the same results", "[cudnn]") {
  Device device(Place::cuda);
  const auto executed = [&](const char* times, AttentionShape shape) {
    setenv("TRIREME_STANDIN_WORKSPACE", times, 1);
    CHECK(fused_refusal(shape).empty());
    const int64_t before = trireme_standin_executions();
    CHECK(fused_agrees(device, shape));
    unsetenv("TRIREME_STANDIN_WORKSPACE");
    return (trireme_standin_executions() - before) / 4;  // of the four that fused_agrees() asks for
  };
  // A backward has 2 x 8 matrices of 128 x 128 scores in bf16, and two tensors of gradients before the sums over heads: 1 MiB.
  for (const auto& [backward, together] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    const AttentionShape shape{
        .backward = backward, .rows = 2, .tokens = 128, .heads = 8, .kv_heads = 4, .head_size = 64, .together = together};
    AttentionShape other = shape, masked = shape;
    other.window = 40, masked.documents = true;
    CHECK(executed("1", shape) == 1);
    CHECK(executed("4000", other) == (backward ? 4 : 2));
    CHECK(executed("1", masked) == 1);
    masked.window = 40;
    CHECK(executed("4000", masked) == (backward ? 4 : 2));
  }
  setenv("TRIREME_STANDIN_WORKSPACE", "400000", 1);
  CHECK_THAT(fused_refusal({.backward = true, .rows = 1, .tokens = 128, .heads = 4, .kv_heads = 2, .head_size = 64}),
             ContainsSubstring("cuDNN's deterministic kernel takes a workspace of "));
  unsetenv("TRIREME_STANDIN_WORKSPACE");
}

}  // namespace trireme
