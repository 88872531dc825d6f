// Gradients whose elements f32 holds but whose sum of squares it does not: their norm is finite, and clipping by it works.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/device.h"
#include "kernels/gate.h"
#include "kernels/ops/exact_norm.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/ops/update_gate.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

SquaredSum sum_in(const HostTensor& total) {
  return {.plain = static_cast<float>(total[0]), .scaled = static_cast<float>(total[1])};
}
double norm_in(const SquaredSum& sum) {
  return sum.large() ? std::sqrt(static_cast<double>(sum.scaled)) / SquaredSum::kRootOfScale : std::sqrt(sum.plain);
}

SquaredSum fast_sum(Device& device, const HostTensor& x) {
  HostTensor total(Dtype::f32, {SquaredSum::kSize}), table(Dtype::i32, {2, SquaredNorm::kRow});
  const std::vector<Tensor> xs{x, x};
  run(device.compute(), SquaredNormTable{.table = table, .xs = xs});
  run(device.compute(), SquaredNorm{.total = total, .xs = xs, .table = table});
  return sum_in(total);
}

SquaredSum exact_sum(Device& device, const HostTensor& x) {
  HostTensor top(Dtype::f32, {1}), limbs(Dtype::f32, {kLimbs}), total(Dtype::f32, {SquaredSum::kSize});
  run(device.compute(), LargestMagnitude{.top = top, .x = x});
  for (int twice = 0; twice < 2; ++twice) run(device.compute(), ExactSquares{.limbs = limbs, .x = x, .top = top});
  run(device.compute(), SumOfSquares{.total = total, .limbs = limbs, .top = top});
  return sum_in(total);
}

// Scale and passes.
std::array<double, 2> gate_of(Device& device, const SquaredSum& sum, float clip, const StepLimits& limits = {}) {
  HostTensor gate(Dtype::f32, {Gate::kSize}), numbers(Dtype::f32, {StepNumbers::kSize}), norm(Dtype::f32, {SquaredSum::kSize});
  norm.set(0, sum.plain), norm.set(1, sum.scaled);
  run(device.compute(), StepNumbers{.numbers = numbers, .step = 1, .limits = limits});
  run(device.compute(), UpdateGate{.gate = gate, .numbers = numbers, .squared_norm = norm, .clip = clip});
  return {gate[0], gate[1]};
}

}  // namespace

TEST_CASE("finite elements have a finite norm, in both sums, up to the largest that f32 holds") {
  Device device(tested_place());
  for (const int64_t n : {1, 7, 5000})
    for (const double largest : {1e10, 1e18, 1.9e19, 1e25, 3e38}) {
      CAPTURE(n, largest);
      HostTensor x = random_tensor(Dtype::f32, {n}, 5);
      x.set(n / 2, largest);
      if (n > 1) x.set(n - 1, -largest);
      double squares = 0;
      for (const double v : x.values()) squares += 2 * v * v;
      for (const SquaredSum& sum : {fast_sum(device, x), exact_sum(device, x)}) {
        CHECK(norm_in(sum) == Approx(std::sqrt(squares)).epsilon(2e-7));
        CHECK(sum.large() == (squares > kLargest));
        CHECK(std::isfinite(sum.scaled));
      }
    }
}

TEST_CASE("numbers that are not finite have no norm in either sum") {
  Device device(tested_place());
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    HostTensor x = random_tensor(Dtype::f32, {100}, 6);
    x.set(40, bad);
    for (const SquaredSum& sum : {fast_sum(device, x), exact_sum(device, x)}) {
      CHECK_FALSE(std::isfinite(sum.plain));
      CHECK_FALSE(sum.large());
      CHECK(gate_of(device, sum, 1)[1] == 0);
    }
  }
}

TEST_CASE("a large norm is clipped to the clip, and passes only where squares of the clipped gradient are finite") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {3});
  x.set(0, 2e30), x.set(2, -1e30);
  const SquaredSum sum = fast_sum(device, x);
  REQUIRE(sum.large());
  const auto [scale, passes] = gate_of(device, sum, 0.5f);
  CHECK(passes == 1);
  CHECK(scale * norm_in(sum) == Approx(0.5).epsilon(1e-6));
  CHECK(gate_of(device, sum, 0)[1] == 0);                              // unclipped, its squares are infinite
  CHECK(gate_of(device, sum, 1e25f)[1] == 0);                          // likewise
  CHECK(gate_of(device, sum, 0.5f, {.squared_norm = 1e30f})[1] == 0);  // a spike
  CHECK(gate_of(device, sum, 0.5f, {.squared_norm = -1, .loss = -1})[1] == 0);
  for (int64_t i = 0; i < 3; ++i) x.set(i, 3e38);  // a norm that f32 cannot hold: 7e38
  CHECK(norm_in(fast_sum(device, x)) == Approx(std::sqrt(6.0) * 3e38));
  CHECK(gate_of(device, fast_sum(device, x), 0.5f)[1] == 0);
}
