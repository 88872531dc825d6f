// A thread takes a pack of a head's lower half and its partner of the upper half, so each element
// is read and written once.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/rope.h"

namespace trireme {
namespace {

struct Scaling {
  double factor, low, high, original;
};

__device__ double scaled(double frequency, const Scaling& s) {
  constexpr double kTurn = 2 * 3.14159265358979323846;
  if (s.factor <= 1) return frequency;
  const double wavelength = kTurn / frequency;
  if (wavelength < s.original / s.high) return frequency;
  if (wavelength > s.original / s.low) return frequency / s.factor;
  const double mix = (s.original / wavelength - s.low) / (s.high - s.low);
  return (1 - mix) * frequency / s.factor + mix * frequency;
}

__global__ void rope_table(float* table, int64_t n, int64_t half, double theta, Scaling scaling) {
  for_packs<1>(n, [&](auto, int64_t at) {
    const auto i = static_cast<double>(at % half), position = static_cast<double>(at / half);
    const double angle = position * scaled(pow(theta, -i / static_cast<double>(half)), scaling);
    table[2 * at] = static_cast<float>(cos(angle));
    table[2 * at + 1] = static_cast<float>(sin(angle));
  });
}

struct Rotation {
  const int32_t* positions;
  const float* table;
  int64_t rows;  // of the table
  float sign;    // -1 rotates back
};

// (low, high) rotated by the angles of row n and elements [i, i + kN) of half a head.
template <int kN>
__device__ void turn(const Rotation& turns, int64_t n, int64_t i, int64_t half, float (&low)[kN], float (&high)[kN]) {
  const int64_t position = turns.positions[n];
  if (position < 0 || position >= turns.rows) __trap();
  const float* angle = turns.table + (position * half + i) * 2;
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    const float x = low[k], y = high[k], c = angle[2 * k], s = turns.sign * angle[2 * k + 1];
    low[k] = x * c - y * s;
    high[k] = y * c + x * s;
  }
}

// Moves heads between a row of the fused projection, H + 2 K heads, and separate tensors. kSplit:
// out of the row; else into it.
template <class T>
struct Heads {
  T *qkv, *q, *k, *v;
  int64_t heads, shared, size;
  // Head h of row n in the separate tensors.
  __device__ T* at(int64_t n, int64_t h) const {
    if (h < heads) return q + (n * heads + h) * size;
    if (h < heads + shared) return k + (n * shared + h - heads) * size;
    return v + (n * shared + h - heads - shared) * size;
  }
};

template <class T, int kN, bool kSplit, bool kTurn>  // kTurn only with kSplit
__global__ void move_heads(Heads<T> t, Rotation turns, int64_t rows) {
  const int64_t all = t.heads + 2 * t.shared, half = kTurn ? t.size / 2 : t.size, packs = half / kN, n_packs = rows * all * packs;
  for_packs<1>(n_packs, [&](auto, int64_t at) {
    const int64_t i = at % packs * kN, h = at / packs % all, n = at / packs / all;
    T* const inside = t.qkv + (n * all + h) * t.size + i;
    T* const beside = t.at(n, h) + i;
    const T* const from = kSplit ? inside : beside;
    T* const to = kSplit ? beside : inside;
    float low[kN];
    load<kN>(low, from);
    if constexpr (kTurn) {
      float high[kN];
      load<kN>(high, from + half);
      if (h < t.heads + t.shared) turn<kN>(turns, n, i, half, low, high);
      store<kN>(to + half, high);
    }
    store<kN>(to, low);
  });
}

template <class T, int kN>
__global__ void rotate(T* x, Rotation turns, int64_t rows, int64_t row_size, int64_t heads, int64_t size) {
  const int64_t half = size / 2, packs = half / kN;
  for_packs<1>(rows * heads * packs, [&](auto, int64_t at) {
    const int64_t i = at % packs * kN, h = at / packs % heads, n = at / packs / heads;
    T* const head = x + n * row_size + h * size + i;
    float low[kN], high[kN];
    load<kN>(low, head);
    load<kN>(high, head + half);
    turn<kN>(turns, n, i, half, low, high);
    store<kN>(head, low);
    store<kN>(head + half, high);
  });
}

Rotation turns_of(const Tensor& positions, const Tensor& table, bool back) {
  if (!table) return {};
  return {.positions = positions.as<int32_t>(), .table = table.as<float>(), .rows = table.dim(0), .sign = back ? -1.0f : 1.0f};
}

// Fused heads, qkv [N, (H + 2 K) D], and separate ones: [N, H, D], [N, K, D], [N, K, D].
struct SplitHeads {
  const Tensor &qkv, &q, &k, &v;
};

template <bool kSplit>
void move(const Cuda& cuda, const SplitHeads& of, const Rotation& turns) {
  with_dtype(of.qkv.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Heads<T> heads{.qkv = of.qkv.as<T>(),
                         .q = of.q.as<T>(),
                         .k = of.k.as<T>(),
                         .v = of.v.as<T>(),
                         .heads = of.q.dim(1),
                         .shared = of.k.dim(1),
                         .size = of.q.cols()};
    const bool turned = turns.table != nullptr;
    with_packs(heads.size % (turned ? 2 * kPack : kPack) == 0 && in_packs({of.qkv, of.q, of.k, of.v}), [&](auto pack) {
      const Grid grid = grid_for_packs(of.qkv.size() / (turned ? 2 : 1), pack);
      if constexpr (kSplit)
        if (turned) return start(cuda, grid, move_heads<T, pack, true, true>, heads, turns, of.qkv.rows());
      start(cuda, grid, move_heads<T, pack, kSplit, false>, heads, turns, of.qkv.rows());
    });
  });
}

}  // namespace

void launch(const Cuda& cuda, const RopeTable& op) {
  const int64_t n = op.table.dim(0) * op.table.dim(1);
  const Scaling scaling{.factor = op.factor, .low = op.low_factor, .high = op.high_factor, .original = op.original_context};
  start(cuda, grid_for_packs(n, 1), rope_table, op.table.as<float>(), n, op.table.dim(1), op.theta, scaling);
}

void launch(const Cuda& cuda, const SplitHeadsForward& op) {
  move<true>(cuda, {.qkv = op.qkv, .q = op.q, .k = op.k, .v = op.v}, turns_of(op.positions, op.table, false));
}

void launch(const Cuda& cuda, const SplitHeadsBackward& op) {
  move<false>(cuda, {.qkv = op.dqkv, .q = op.dq, .k = op.dk, .v = op.dv}, {});
}

void launch(const Cuda& cuda, const Rotate& op) {
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.x.dim(0), size = op.x.cols();
    with_packs(size % (2 * kPack) == 0 && in_packs({op.x}), [&](auto pack) {
      start(cuda, grid_for_packs(rows * op.heads * size / 2, pack), rotate<T, pack>, op.x.as<T>(),
            turns_of(op.positions, op.table, op.backward), rows, op.x.dim(1) * size, op.heads, size);
    });
  });
}

}  // namespace trireme
