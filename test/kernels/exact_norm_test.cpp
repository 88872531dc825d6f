#include "kernels/ops/exact_norm.h"

#include <cmath>
#include <limits>

#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

namespace {

// The sum of squares of x, cut into this many parts that are combined like ranks': by adding their
// limbs in f32.
float squares_of(Device& device, const HostTensor& x, int64_t parts) {
  Stream& stream = device.compute();
  HostTensor top(Dtype::f32, {1}), limbs(Dtype::f32, {kLimbs}), total(Dtype::f32, {SquaredSum::kSize});
  const Tensor all = x.tensor().view({x.size()});
  const auto part = [&](int64_t i) { return all.slice(x.size() * i / parts, x.size() * (i + 1) / parts); };
  for (int64_t i = parts; i-- > 0;) run(stream, LargestMagnitude{.top = top, .x = part(i)});
  for (int64_t i = 0; i < parts; ++i) {
    HostTensor mine(Dtype::f32, {kLimbs});
    run(stream, ExactSquares{.limbs = i % 2 == 0 ? mine : limbs, .x = part(i), .top = top});
    if (i % 2 == 0) run(stream, Add{.y = limbs, .a = limbs, .b = mine});
  }
  run(stream, SumOfSquares{.total = total, .limbs = limbs, .top = top});
  return static_cast<float>(total[0]);
}

}  // namespace

TEST_CASE("the exact sum of squares is the double sum, whatever the scale") {
  Device device(tested_place());
  for (const int64_t n : {1, 17, 8193, 100000})
    for (const double scale : {1e-30, 1e-18, 1e-3, 1.0, 3e5, 1e16}) {
      const HostTensor x = random_tensor(Dtype::f32, {n}, 3, scale);
      double wanted = 0;
      for (const double v : x.values()) wanted += v * v;
      CAPTURE(n, scale);
      if (wanted > std::numeric_limits<float>::min())
        CHECK(squares_of(device, x, 1) == Approx(wanted).epsilon(1.2e-7));
      else
        CHECK(squares_of(device, x, 1) <= std::numeric_limits<float>::min());
    }
}

TEST_CASE("the exact sum of squares has the same bits however it is cut, and with any number of threads") {
  Device device(tested_place());
  HostTensor x = random_tensor(Dtype::f32, {70001}, 4);
  for (int64_t i = 0; i < x.size(); i += 3) x.set(i, x[i] * 1e-9);  // here f32 sums would differ
  const float whole = squares_of(device, x, 1);
  for (const int64_t parts : {2, 3, 7, 64}) CHECK(squares_of(device, x, parts) == whole);
  const Threads two(2);
  CHECK(squares_of(device, x, 1) == whole);
}

TEST_CASE("the exact sum of squares of zeros is zero, and NaN or infinity stay visible") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {100});
  CHECK(squares_of(device, x, 3) == 0);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    x.set(70, bad);
    CHECK(std::isnan(squares_of(device, x, 3)));
  }
}
