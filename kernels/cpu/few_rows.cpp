#include "kernels/cpu/few_rows.h"

#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

namespace {

using Words [[gnu::vector_size(kVectorBytes)]] = uint32_t;
using Integers [[gnu::vector_size(kVectorBytes)]] = int32_t;

template <class V>
inline V read_anywhere(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Weights of one step along a row, from anywhere: a register of them. Each is a part of a 32-bit word, and vector number j has part
// j of every word in f32. So x has the same order: see pack_rows.
template <class T>
struct Step {
  static constexpr int64_t kParts = sizeof(float) / sizeof(T);
  Words words;
  explicit Step(const T* p) : words(read_anywhere<Words>(p)) {}
  Vec operator[](int64_t j) const {
    if constexpr (kDtype<T> == Dtype::i8) return __builtin_convertvector(std::bit_cast<Integers>(words << (24 - 8 * j)) >> 24, Vec);
    if constexpr (kDtype<T> == Dtype::bf16) return std::bit_cast<Vec>(j == 0 ? words << 16 : words & 0xffff0000u);
    return std::bit_cast<Vec>(words);
  }
};
template <class T>
constexpr int64_t kStep = kLanes* Step<T>::kParts;

inline float widened(int8_t x) { return x; }
inline float widened(auto x) { return to_float(x); }

template <size_t count>
struct Floats {
  using Type [[gnu::vector_size(4 * count)]] = float;
};

// Halves are added until one lane is left.
template <size_t count>
inline float total(typename Floats<count>::Type v) {
  if constexpr (count == 2) return v[0] + v[1];
  if constexpr (count > 2) return [&]<int... i>(std::integer_sequence<int, i...>) {
      constexpr int half = sizeof...(i);
      return total<half>(__builtin_shufflevector(v, v, i...) + __builtin_shufflevector(v, v, (half + i)...));
    }
  (std::make_integer_sequence<int, count / 2>());
}

constexpr int64_t kRowGroup = kLanes >= 16 ? 8 : 4;  // of x: as many sums as registers hold

// Packs rows of x: their first vectors, in the order of a step's, then their second ones; what is left after whole steps as it is,
// row after row. Rows that lie apart in memory would share few sets of a cache.
template <class T, class X>
void pack_rows(float* to, const X* from, int64_t rows, int64_t k) {
  constexpr int64_t parts = Step<T>::kParts;
  const int64_t whole = k / kStep<T> * kStep<T>;
  for (int64_t at = 0; at < whole; at += kStep<T>)
    for (int64_t j = 0; j < parts; ++j)
      for (int64_t row = 0; row < rows; ++row, to += kLanes)
        for (int64_t i = 0; i < kLanes; ++i) to[i] = to_float(from[row * k + at + i * parts + j]);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = whole; at < k; ++at) *to++ = to_float(from[row * k + at]);
}

// Bytes ahead of the weights in use that come to L2: rows are too short for the processor to foresee. On a Zen 4 two rows of 768
// at once then pass at 28 to 32 GB/s of 31 that plain reads have; four at once, each fetching what it will need next, at 22.
constexpr int64_t kFetched = 8192;
constexpr int kAtOnce = 2;

// sums[j][i] = row j of w times packed row i of x, both of length k.
template <class T, int columns, int rows>
[[gnu::noinline]] void dots(const T* w, const float* x, int64_t k, float (*sums)[kRowGroup]) {
  Vec part[columns][rows];
#pragma GCC unroll 4
  for (int j = 0; j < columns; ++j)
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) part[j][i] = Vec{};
  const int64_t whole = k / kStep<T> * kStep<T>;
  for (int64_t at = 0; at < whole; at += kStep<T>) {
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) __builtin_prefetch(w + j * k + at + kFetched / static_cast<int64_t>(sizeof(T)), 0, 2);
#pragma GCC unroll 4
    for (int64_t v = 0; v < Step<T>::kParts; ++v) {
      Vec weights[columns];
#pragma GCC unroll 4
      for (int j = 0; j < columns; ++j) weights[j] = Step<T>(w + j * k + at)[v];
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i, x += kLanes) {
        const Vec some = read_anywhere<Vec>(x);
#pragma GCC unroll 4
        for (int j = 0; j < columns; ++j) part[j][i] += weights[j] * some;
      }
    }
  }
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) {
      sums[j][i] = total<kLanes>(part[j][i]);
      for (int64_t at = whole; at < k; ++at) sums[j][i] += widened(w[j * k + at]) * x[i * (k - whole) + at - whole];
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
  float sums[kAtOnce][kRowGroup];
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
using MultiplyColumns = void (*)(const Rows<T, C>&, int64_t begin, int64_t end);

// By the number of rows, less one.
template <class T, class C>
constexpr auto multiply_by_rows = []<int... rows>(std::integer_sequence<int, rows...>) {
  return std::array<MultiplyColumns<T, C>, sizeof...(rows)>{multiply_columns<T, C, rows + 1>...};
}
(std::make_integer_sequence<int, kRowGroup>());

template <class T, class C>
void multiply_all(const Rows<T, C>& all, int64_t m) {
  constexpr int64_t kWeightRows = 32;  // they stay in the cache while rows of x pass
  const int64_t n = all.n, blocks = (n + kWeightRows - 1) / kWeightRows;
#pragma omp parallel for schedule(static) if (n * all.k > 32768)
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t row = 0; row < m; row += kRowGroup) {
      Rows<T, C> some = all;
      some.c += row * n, some.x += row * all.k;
      const auto multiply = multiply_by_rows<T, C>[static_cast<size_t>(std::min(kRowGroup, m - row) - 1)];
      multiply(some, b * kWeightRows, std::min(n, (b + 1) * kWeightRows));
    }
}

// x as f32, packed by groups of kRowGroup rows: itself, or a copy.
template <class T>
const float* packed(const Cpu& cpu, const Tensor& x) {
  const int64_t m = x.dim(0), k = x.dim(1), groups = (m + kRowGroup - 1) / kRowGroup;
  if (m == 1 && kDtype<T> == Dtype::f32 && x.dtype() == Dtype::f32) return x.as<float>();
  auto* const copy = reinterpret_cast<float*>(cpu.workspace->reserve(4 * x.size()));
  with_dtype(x.dtype(), [&](auto zero) {
    const auto* from = x.as<decltype(zero)>();
#pragma omp parallel for if (groups > 4)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = group * kRowGroup;
      pack_rows<T>(copy + row * k, from + row * k, std::min(kRowGroup, m - row), k);
    }
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
  const auto floats = [](const Tensor& t) { return t ? t.as<float>() : nullptr; };
  with_weight_dtype(op.w.dtype(), [&](auto weight) {
    with_dtype(op.c.dtype(), [&](auto out) {
      using T = decltype(weight);
      using C = decltype(out);
      multiply_all<T, C>({.c = op.c.as<C>(),
                          .x = packed<T>(cpu, op.x),
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
