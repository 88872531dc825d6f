// Sums the same integers as the CPU, so the bits are equal. Magnitudes are compared as integers:
// for floats without sign the order is the same, with NaN above infinity.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/exact_norm.h"

namespace trireme {
namespace {

__extension__ using Integer = __int128;

constexpr int kHalf = 40;                 // bits of each half of a square's integer
constexpr int64_t kMostOfPart = 1 << 22;  // most squares whose halves fit in 64 bits when summed

__global__ void largest_magnitude(unsigned* top, const float* x, int64_t n) {
  unsigned mine = 0;
  for_packs<1>(n, [&](auto, int64_t i) { mine = max(mine, __float_as_uint(x[i]) & 0x7fffffffu); });
  constexpr unsigned kInfinity = 0x7f800000u;
  mine = min(mine, kInfinity);  // larger integers are NaN
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0 && mine > 0) atomicMax(top, mine);
}

__device__ bool usable(float top) { return top != 0 && isfinite(top); }
// Exponent n such that |x| 2^-n < 1 for every |x| <= top.
__device__ int exponent_above(float top) { return ilogbf(top) + 1; }

// halves[2 b], halves[2 b + 1] = sums of the upper and lower halves of part b's squares.
__global__ void exact_parts_of_squares(long long* halves, const float* x, const float* top, int64_t n, int64_t length) {
  auto& partial = block_shared<long long[2][32]>();
  constexpr auto kUnit = static_cast<double>(int64_t{1} << kHalf);
  const double scale = usable(*top) ? ldexp(1.0, -exponent_above(*top)) : 0.0;
  const int64_t begin = blockIdx.x * length, end = min(n, begin + length);
  long long high = 0, low = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const double q = x[i] * scale, square = q * q * kUnit;
    const auto above = static_cast<long long>(square);
    high += above;
    low += static_cast<long long>((square - static_cast<double>(above)) * kUnit);
  }
  high = block_sum(high, partial[0]), low = block_sum(low, partial[1]);
  if (threadIdx.x == 0) halves[2 * blockIdx.x] = high, halves[2 * blockIdx.x + 1] = low;
}

__device__ Integer integer_of(const float* limbs) {
  Integer value = 0;
  for (int64_t i = kLimbs; i-- > 0;) value = value * 256 + static_cast<long long>(limbs[i]);
  return value;
}

// Runs on one thread.
__global__ void add_to_limbs(float* limbs, const long long* halves, const float* top, int64_t parts) {
  if (!usable(*top)) return;
  Integer value = integer_of(limbs);
  for (int64_t i = 0; i < parts; ++i) value += (static_cast<Integer>(halves[2 * i]) << kHalf) + halves[2 * i + 1];
  for (int64_t i = 0; i < kLimbs; ++i, value /= 256) limbs[i] = static_cast<float>(static_cast<long long>(value % 256));
}

__global__ void sum_of_squares(float* total, const float* limbs, const float* top) {
  const double sum = usable(*top) ? ldexp(static_cast<double>(integer_of(limbs)), 2 * exponent_above(*top) - 2 * kHalf) : 0.0;
  total[0] = isfinite(*top) ? static_cast<float>(sum) : __uint_as_float(0x7fc00000u);
  total[1] = isfinite(*top) ? static_cast<float>(sum * SquaredSum::kScale) : __uint_as_float(0x7fc00000u);
}

}  // namespace

void launch(const Cuda& cuda, const LargestMagnitude& op) {
  start(cuda, grid_for_packs(op.x.size(), 1), largest_magnitude, reinterpret_cast<unsigned*>(op.top.as<float>()), op.x.as<float>(),
        op.x.size());
}

void launch(const Cuda& cuda, const ExactSquares& op) {
  const int64_t n = op.x.size();
  if (n == 0) return;
  const int64_t length = std::clamp<int64_t>((n + 1023) / 1024, 4096, kMostOfPart), parts = (n + length - 1) / length;
  auto* halves = static_cast<long long*>(scratch(cuda, 2 * parts * 8));
  start(cuda, {.blocks = parts, .threads = kThreads, .shared = sizeof(long long[2][32])}, exact_parts_of_squares, halves,
        op.x.as<float>(), op.top.as<float>(), n, length);
  start(cuda, {.blocks = 1, .threads = 1}, add_to_limbs, op.limbs.as<float>(), halves, op.top.as<float>(), parts);
}

void launch(const Cuda& cuda, const SumOfSquares& op) {
  start(cuda, {.blocks = 1, .threads = 1}, sum_of_squares, op.total.as<float>(), op.limbs.as<float>(), op.top.as<float>());
}

}  // namespace trireme
