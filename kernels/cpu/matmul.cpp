// Matrix products by oneDNN, versions 2 and 3; no other file includes it. Primitives are cached by
// shape, since creating one costs more than a small product. Those of a few rows are our own, and
// those of bf16 except by AMX: oneDNN is slower by AVX512-BF16, and ten times slower without. So are
// those of f32 where CpuFacts::own_f32() says so.
//
// All layouts are plain row-major; a transpose is a pair of strides. oneDNN would interleave the
// small operand b of a weight gradient (transpose_a) of bf16 again for every block of rows of c. So b
// is first reordered to oneDNN's own layout. f32 is not interleaved and gains nothing.
#include "kernels/ops/matmul.h"

#include <omp.h>

#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "kernels/allowed_bf16.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/simd.h"
#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gelu.h"

namespace trireme {

namespace {

using dnnl::memory;

// Cache key of a primitive: all that it depends on.
struct Kind {
  int64_t m, n, k;
  Dtype in, out;
  bool bias, transpose_a, transpose_b, accumulate;
  int threads;
  auto operator<=>(const Kind&) const = default;

  bool packs_b() const { return transpose_a && in == Dtype::bf16; }
};

// A primitive with its descriptors; a handle, cheap to copy.
struct Product {
  memory::desc a, b, packed_b, bias, c, scratch;
  dnnl::matmul multiply;
  dnnl::reorder pack;  // only if packed_b differs from b
};

memory::data_type type_of(Dtype dtype) { return dtype == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

memory::desc matrix(int64_t rows, int64_t cols, Dtype dtype, bool transposed) {
  return {{rows, cols}, type_of(dtype), transposed ? memory::dims{1, rows} : memory::dims{cols, 1}};
}

dnnl::matmul::primitive_desc describe(const Product& p, const memory::desc& b, const dnnl::primitive_attr& attr,
                                      const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, p.a, b, p.bias, p.c, attr};
#else
  return {{p.a, b, p.bias, p.c}, attr, engine};
#endif
}

Product make(const Kind& kind, const dnnl::engine& engine) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (kind.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  Product p;
  p.a = matrix(kind.m, kind.k, kind.in, kind.transpose_a);
  p.b = matrix(kind.k, kind.n, kind.in, kind.transpose_b);
  p.c = matrix(kind.m, kind.n, kind.out, false);
  if (kind.bias) p.bias = matrix(1, kind.n, Dtype::f32, false);
  const memory::desc any({kind.k, kind.n}, type_of(kind.in), memory::format_tag::any);
  const auto description = describe(p, kind.packs_b() ? any : p.b, attr, engine);
  p.packed_b = description.weights_desc();
  p.scratch = description.scratchpad_desc();
  p.multiply = dnnl::matmul(description);
  if (p.packed_b != p.b) p.pack = dnnl::reorder(dnnl::reorder::primitive_desc(engine, p.b, engine, p.packed_b));
  return p;
}

// Memoises make(); no result depends on its state.
class Products {
 public:
  const dnnl::engine engine{dnnl::engine::kind::cpu, 0};

  Product of(const Kind& kind) {
    const std::lock_guard lock(mutex_);
    auto found = products_.find(kind);
    if (found == products_.end()) {
      if (products_.size() == kMost) products_.clear();  // a sampler's shapes grow with every token
      found = products_.emplace(kind, make(kind, engine)).first;
    }
    return found->second;
  }

 private:
  static constexpr size_t kMost = 1024;
  std::mutex mutex_;
  std::map<Kind, Product> products_;
};

Products& products() {
  static Products all;
  return all;
}

int64_t aligned(size_t bytes) { return (static_cast<int64_t>(bytes) + 63) / 64 * 64; }

// Multiplies in the dtypes of the operands. `scratch` has the size that room() returns.
void multiply(const Matmul& op, const Product& p, std::byte* scratch) {
  const dnnl::engine& engine = products().engine;
  dnnl::stream stream(engine);
  memory a(p.a, engine, op.a.data()), b(p.b, engine, op.b.data()), c(p.c, engine, op.c.data());
  if (p.pack) {
    memory packed(p.packed_b, engine, scratch + aligned(p.scratch.get_size()));
    dnnl::reorder(p.pack).execute(stream, b, packed);
    b = packed;
  }
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
  arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(p.scratch, engine, scratch));
  if (op.bias) arguments.emplace(DNNL_ARG_BIAS, memory(p.bias, engine, op.bias.data()));
  p.multiply.execute(stream, arguments);
  stream.wait();
}

int64_t room(const Product& p) { return aligned(p.scratch.get_size()) + (p.pack ? aligned(p.packed_b.get_size()) : 0); }

Product product_of(const Matmul& op) {
  return products().of({.m = op.m(),
                        .n = op.n(),
                        .k = op.k(),
                        .in = op.a.dtype(),
                        .out = op.c.dtype(),
                        .bias = op.bias.present(),
                        .transpose_a = op.transpose_a,
                        .transpose_b = op.transpose_b,
                        .accumulate = op.accumulate,
                        .threads = omp_get_max_threads()});
}

// y = x in bf16 or f32, which represent all 8-bit numbers exactly.
template <class Y, class X>
void widen(const Tensor& y, const Tensor& x) {
  static const auto all = [] {
    std::array<Y, 256> numbers{};
    for (size_t i = 0; i < numbers.size(); ++i) {
      X number;
      number.bits = static_cast<uint8_t>(i);
      numbers[i] = to<Y>(static_cast<float>(number));
    }
    return numbers;
  }();
  Y* to = y.as<Y>();
  const X* from = x.as<X>();
  for_blocks(x.size(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = all[from[i].bits];
  });
}

// c = sums * scale + bias [+ c].
void scale_sums(const Matmul& op, const float* sums) {
  const float scale = *op.a_scale.as<float>() * *op.b_scale.as<float>();
  with_dtype(op.c.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* c = op.c.as<T>();
    const float* bias = op.bias ? op.bias.as<float>() : nullptr;
    const int64_t n = op.n();
    for_blocks(op.c.size(), kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        c[i] = to<T>(sums[i] * scale + (bias != nullptr ? bias[i % n] : 0) + (op.accumulate ? to_float(c[i]) : 0));
    });
  });
}

// Facts of a processor that a test has made up may promise more.
bool has_bf16() { return allowed_bf16().avx512; }

const PackedTile& tile_for(const Cpu& cpu, Dtype operands) {
  if (operands != Dtype::bf16) return plain_tile(operands);
  if (cpu.own_amx && allowed_bf16().amx) return amx_tile();
  return cpu.own_bf16 && has_bf16() ? bf16_tile() : plain_tile(operands);
}

// Multiplies f32 or bf16.
void multiply_wide(const Cpu& cpu, const Matmul& op) {
  const Dtype dtype = op.a.dtype();
  const bool ours = dtype == Dtype::bf16 ? !(cpu.bf16_products && has_bf16()) : cpu.own_f32;
  if (ours) return multiply_packed(cpu, op, tile_for(cpu, dtype));
  const Product product = product_of(op);
  multiply(op, product, cpu.workspace->reserve(room(product)));
}

// 8-bit operands, no faster here, but with the same results as on a GPU: multiplies wider copies,
// then scales.
void multiply_8_bits(const Cpu& cpu, const Matmul& op) {
  const bool by_bf16 = (cpu.bf16_products || cpu.own_bf16 || cpu.own_amx) && has_bf16();
  const Dtype dtype = by_bf16 ? Dtype::bf16 : Dtype::f32;
  const auto wide_as = [](const Tensor& t, Dtype dtype, std::byte* at) {
    return Tensor(at, dtype, t.place(), {t.dim(0), t.dim(1)});
  };
  Matmul wide{.c = wide_as(op.c, Dtype::f32, nullptr),
              .a = wide_as(op.a, dtype, nullptr),
              .b = wide_as(op.b, dtype, nullptr),
              .transpose_b = true};
  const bool ours = by_bf16 ? !cpu.bf16_products : cpu.own_f32;
  const PackedTile& tile = tile_for(cpu, dtype);
  const Product product = ours ? Product{} : product_of(wide);
  const int64_t scratch = ours ? packed_bytes(wide, tile) : room(product);
  const auto room_of = [](const Tensor& t) { return aligned(static_cast<size_t>(t.bytes())); };
  std::byte* memory = cpu.workspace->reserve(room_of(wide.a) + room_of(wide.b) + room_of(wide.c) + scratch);
  for (Tensor* t : {&wide.a, &wide.b, &wide.c}) *t = wide_as(*t, t->dtype(), memory), memory += room_of(*t);
  const auto widen_into = [&](const Tensor& to, const Tensor& from) {
    with_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      from.dtype() == Dtype::e4m3 ? widen<T, E4m3>(to, from) : widen<T, E5m2>(to, from);
    });
  };
  widen_into(wide.a, op.a), widen_into(wide.b, op.b);
  ours ? multiply_packed(memory, wide, tile) : multiply(wide, product, memory);
  scale_sums(op, wide.c.as<float>());
}

void multiply_plainly(const Cpu& cpu, const Matmul& op) {
  require(op.k() > 0, text("matmul over no elements: ", op.a, " and ", op.b));
  try {
    if (op.of_8_bits()) return multiply_8_bits(cpu, op);
    if (has_few_rows(op)) return multiply_few_rows(cpu, op);
    multiply_wide(cpu, op);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw Error(text("oneDNN: ", error.message, " in the product of ", op.a, " and ", op.b));
  }
}

}  // namespace

AllowedBf16 allowed_bf16() {
  static const auto all = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [](dnnl::cpu_isa isa) { return (all & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa); };
  return {.avx512 = has(dnnl::cpu_isa::avx512_core_bf16), .amx = has(dnnl::cpu_isa::avx512_core_amx)};
}

// Fusion would gain nothing on a CPU: epilogues follow the product.
void launch(const Cpu& cpu, const Matmul& op) {
  if (op.c.size() == 0 || (op.k() == 0 && op.accumulate)) return;
  Matmul plain = op;
  plain.pre_activation = plain.gelu_input = plain.sums = {};
  if (op.pre_activation) plain.c = op.pre_activation;
  multiply_plainly(cpu, plain);
  if (op.pre_activation) launch(cpu, GeluForward{.y = op.c, .x = op.pre_activation});
  if (op.gelu_input) {
    launch(cpu, GeluBackward{.dx = op.c, .dy = op.c, .x = op.gelu_input});
  }
  if (op.sums) launch(cpu, BiasBackward{.dbias = op.sums, .dy = op.a});
}

}  // namespace trireme
