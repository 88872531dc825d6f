#include "kernels/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// Positions of the rows, and the table of their angles; absent if nothing rotates.
struct Rotation {
  const int32_t* positions = nullptr;
  const float* table = nullptr;
  int64_t size;    // of a head
  float sign = 1;  // -1 rotates back

  Rotation(const Tensor& at, const Tensor& angles, int64_t head_size, bool back) : size(head_size) {
    if (!angles) return;
    positions = at.as<int32_t>(), table = angles.as<float>(), sign = back ? -1.0f : 1.0f;
    for (int64_t n = 0; n < at.size(); ++n)
      require(0 <= positions[n] && positions[n] < angles.dim(0),
              text("positions[", n, "] is ", positions[n], ", the table has ", angles.dim(0), " rows"));
  }
};

// to = from rotated by the angles of row n, for `heads` heads; to may be from.
template <class T>
void turn(const Rotation& turns, int64_t n, const T* from, T* to_, int64_t heads) {
  const int64_t size = turns.size, half = size / 2;
  if (turns.table == nullptr) {
    std::memcpy(to_, from, static_cast<size_t>(heads * size) * sizeof(T));
    return;
  }
  const float* angle = turns.table + turns.positions[n] * 2 * half;
  for (int64_t h = 0; h < heads; ++h) {
    const T *low = from + h * size, *high = low + half;
    T *to_low = to_ + h * size, *to_high = to_low + half;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float x = to_float(low[i]), y = to_float(high[i]), c = angle[2 * i], s = turns.sign * angle[2 * i + 1];
      to_low[i] = to<T>(x * c - y * s);
      to_high[i] = to<T>(y * c + x * s);
    }
  }
}

double scaled(double frequency, const RopeTable& op) {
  if (op.factor <= 1) return frequency;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < op.original_context / op.high_factor) return frequency;
  if (wavelength > op.original_context / op.low_factor) return frequency / op.factor;
  const double s = (op.original_context / wavelength - op.low_factor) / (op.high_factor - op.low_factor);
  return (1 - s) * frequency / op.factor + s * frequency;
}

}  // namespace

void launch(const Cpu&, const RopeTable& op) {
  float* table = op.table.as<float>();
  const int64_t positions = op.table.dim(0), half = op.table.dim(1);
#pragma omp parallel for schedule(static) if (positions * half > 1024)
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = scaled(std::pow(op.theta, -static_cast<double>(i) / static_cast<double>(half)), op);
    for (int64_t p = 0; p < positions; ++p) {
      float* pair = table + 2 * (p * half + i);
      pair[0] = static_cast<float>(std::cos(static_cast<double>(p) * frequency));
      pair[1] = static_cast<float>(std::sin(static_cast<double>(p) * frequency));
    }
  }
}

void launch(const Cpu&, const SplitHeadsForward& op) {
  const Rotation turns(op.positions, op.table, op.q.cols(), false);
  with_dtype(op.qkv.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.qkv.rows(), size = op.q.cols(), heads = op.q.dim(1), shared = op.k.dim(1);
    const int64_t q = heads * size, kv = shared * size;
#pragma omp parallel for schedule(static) if (op.qkv.size() > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const T* row = op.qkv.as<T>() + n * (q + 2 * kv);
      turn(turns, n, row, op.q.as<T>() + n * q, heads);
      turn(turns, n, row + q, op.k.as<T>() + n * kv, shared);
      std::memcpy(op.v.as<T>() + n * kv, row + q + kv, static_cast<size_t>(kv) * sizeof(T));
    }
  });
}

void launch(const Cpu&, const SplitHeadsBackward& op) {
  with_dtype(op.dqkv.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.dqkv.rows(), q = op.dq.dim(1) * op.dq.cols(), kv = op.dk.dim(1) * op.dk.cols();
#pragma omp parallel for schedule(static) if (op.dqkv.size() > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      T* row = op.dqkv.as<T>() + n * (q + 2 * kv);
      std::copy_n(op.dq.as<T>() + n * q, q, row);
      std::copy_n(op.dk.as<T>() + n * kv, kv, row + q);
      std::copy_n(op.dv.as<T>() + n * kv, kv, row + q + kv);
    }
  });
}

void launch(const Cpu&, const Rotate& op) {
  const Rotation turns(op.positions, op.table, op.x.cols(), op.backward);
  with_dtype(op.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = op.x.dim(0), heads = op.x.dim(1), size = op.x.cols();
#pragma omp parallel for schedule(static) if (op.x.size() > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      T* x = op.x.as<T>() + n * heads * size;
      turn(turns, n, x, x, op.heads);
    }
  });
}

}  // namespace trireme
