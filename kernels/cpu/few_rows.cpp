#include "kernels/cpu/few_rows.h"

#include <array>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

namespace {

using Halves [[gnu::vector_size(__BIGGEST_ALIGNMENT__ / 2)]] = uint16_t;
using Words [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = uint32_t;
using Integers [[gnu::vector_size(__BIGGEST_ALIGNMENT__)]] = int32_t;

// Weights of one step along a row, from anywhere, in vectors of f32. 8-bit ones are the bytes of words: vector number j has
// byte j of each, so x has the same order (see in_order_of_bytes).
template <class T>
struct Step {
  static constexpr int64_t kVectors = 1;
  Vec vector;
  explicit Step(const float* p) { std::memcpy(&vector, p, sizeof vector); }
  explicit Step(const Bf16* p) {
    Halves bits;
    std::memcpy(&bits, p, sizeof bits);
    vector = std::bit_cast<Vec>(__builtin_convertvector(bits, Words) << 16);
  }
  Vec operator[](int64_t) const { return vector; }
};
template <>
struct Step<int8_t> {
  static constexpr int64_t kVectors = 4;
  Words words;
  explicit Step(const int8_t* p) { std::memcpy(&words, p, sizeof words); }
  Vec operator[](int64_t j) const { return __builtin_convertvector(std::bit_cast<Integers>(words << (24 - 8 * j)) >> 24, Vec); }
};
template <class T>
constexpr int64_t kStep = kLanes* Step<T>::kVectors;

// Element k of a step of bytes is byte k % 4 of word k / 4.
template <class X>
void in_order_of_bytes(float* to, const X* from, int64_t k) {
  int64_t at = 0;
  for (; at + kStep<int8_t> <= k; at += kStep<int8_t>)
    for (int64_t i = 0; i < kStep<int8_t>; ++i) to[at + i % 4 * kLanes + i / 4] = to_float(from[at + i]);
  for (; at < k; ++at) to[at] = to_float(from[at]);
}

inline float widened(int8_t x) { return x; }
inline float widened(auto x) { return to_float(x); }

inline Vec load_anywhere(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline float total(Vec v) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

// sums[j][i] = row j of w times row i of x, both of length k.
template <class T, int columns, int rows>
[[gnu::noinline]] void dots(const T* w, const float* x, int64_t k, float (*sums)[kFewRows]) {
  Vec part[columns][rows] = {};
  const int64_t whole = k / kStep<T> * kStep<T>;
  for (int64_t at = 0; at < whole; at += kStep<T>)
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const Step<T> step(w + j * k + at);
      __builtin_prefetch(w + (columns + j) * k + at);  // the next columns: rows are too short for the processor to foresee
#pragma GCC unroll 4
      for (int64_t v = 0; v < Step<T>::kVectors; ++v) {
        const Vec weights = step[v];
#pragma GCC unroll 4
        for (int i = 0; i < rows; ++i) part[j][i] += weights * load_anywhere(x + i * k + at + v * kLanes);
      }
    }
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) {
      sums[j][i] = total(part[j][i]);
      for (int64_t at = whole; at < k; ++at) sums[j][i] += widened(w[j * k + at]) * x[i * k + at];
    }
}

template <class T, class C>
struct Rows {
  C* c;
  const float* x;
  const T* w;
  const float *scales, *bias;  // each may be nullptr
  int64_t n, k;
  bool accumulate;
};

// Columns [begin, end) of c, several at a time: their sums do not wait for each other.
template <class T, class C, int rows>
void multiply_columns(const Rows<T, C>& p, int64_t begin, int64_t end) {
  constexpr int kAtOnce = rows > 2 ? 2 : 4;
  float sums[kAtOnce][kFewRows];
  for (int64_t column = begin; column < end; column += kAtOnce) {
    const int64_t count = std::min<int64_t>(kAtOnce, end - column);
    if (count == kAtOnce)
      dots<T, kAtOnce, rows>(p.w + column * p.k, p.x, p.k, sums);
    else
      for (int64_t j = 0; j < count; ++j) dots<T, 1, rows>(p.w + (column + j) * p.k, p.x, p.k, sums + j);
    for (int64_t j = 0; j < count; ++j) {
      const float scale = p.scales != nullptr ? p.scales[column + j] : 1, bias = p.bias != nullptr ? p.bias[column + j] : 0;
      for (int64_t i = 0; i < rows; ++i) {
        C& to_add = p.c[i * p.n + column + j];
        const float sum = sums[j][i] * scale + bias;
        to_add = to<C>(p.accumulate ? to_float(to_add) + sum : sum);
      }
    }
  }
}

template <class T, class C>
void multiply_all(const Rows<T, C>& all, int64_t m) {
  constexpr int64_t kWeightRows = 32;  // they stay in the cache while rows of x pass
  const std::array multiply{multiply_columns<T, C, 1>, multiply_columns<T, C, 2>, multiply_columns<T, C, 3>,
                            multiply_columns<T, C, 4>};
  const int64_t n = all.n, blocks = (n + kWeightRows - 1) / kWeightRows;
#pragma omp parallel for schedule(static) if (n * all.k > 32768)
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t row = 0; row < m; row += kFewRows) {
      Rows<T, C> some = all;
      some.c += row * n, some.x += row * all.k;
      multiply[static_cast<size_t>(std::min(kFewRows, m - row) - 1)](some, b * kWeightRows, std::min(n, (b + 1) * kWeightRows));
    }
}

// x as f32, in the order that weights of T need: itself, or a copy.
template <class T>
const float* prepared(const Cpu& cpu, const Tensor& x) {
  constexpr bool reorders = kDtype<T> == Dtype::i8;
  if (!reorders && x.dtype() == Dtype::f32) return x.as<float>();
  auto* const copy = reinterpret_cast<float*>(cpu.workspace->reserve(4 * x.size()));
  with_dtype(x.dtype(), [&](auto zero) {
    const auto* from = x.as<decltype(zero)>();
    for_blocks(x.size(), std::max<int64_t>(x.cols(), 1), [&](int64_t begin, int64_t end) {
      if constexpr (reorders)
        in_order_of_bytes(copy + begin, from + begin, end - begin);
      else
        for (int64_t i = begin; i < end; ++i) copy[i] = to_float(from[i]);
    });
  });
  return copy;
}

void with_weight_dtype(Dtype dtype, const auto& f) {
  if (dtype == Dtype::i8) return f(int8_t{});
  with_dtype(dtype, f);
}

}  // namespace

bool has_few_rows(const Matmul& op) { return op.m() <= kFewRows && !op.transpose_a && op.transpose_b && !op.of_8_bits(); }

void multiply_few_rows(const Cpu& cpu, const Matmul& op) {
  multiply_rows(cpu, {.c = op.c, .x = op.a, .w = op.b, .scales = {}, .bias = op.bias, .accumulate = op.accumulate});
}

void multiply_rows(const Cpu& cpu, const RowsProduct& op) {
  static_assert(kFewRows == 4);
  const auto floats = [](const Tensor& t) { return t ? t.as<float>() : nullptr; };
  with_weight_dtype(op.w.dtype(), [&](auto weight) {
    with_dtype(op.c.dtype(), [&](auto out) {
      using T = decltype(weight);
      using C = decltype(out);
      multiply_all<T, C>({.c = op.c.as<C>(),
                          .x = prepared<T>(cpu, op.x),
                          .w = op.w.as<T>(),
                          .scales = floats(op.scales),
                          .bias = floats(op.bias),
                          .n = op.w.dim(0),
                          .k = op.w.dim(1),
                          .accumulate = op.accumulate},
                         op.x.dim(0));
    });
  });
}

}  // namespace trireme
