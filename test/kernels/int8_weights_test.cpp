#include "kernels/ops/int8_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

namespace {

struct Rounded {
  HostTensor y, scales;
};

Rounded round_to_int8(const HostTensor& x, int64_t rows, int64_t cols) {
  Device device(tested_place());
  Rounded r{.y = HostTensor(Dtype::i8, {rows, cols}), .scales = HostTensor(Dtype::f32, {rows})};
  run(device.compute(), RoundToInt8{.y = r.y, .scales = r.scales, .x = x});
  settle();
  return r;
}

}  // namespace

TEST_CASE("each row of a weight is rounded to whole numbers of its own scale") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {4, 64}, {7, 1000}, {70, 513}}) {
      CAPTURE(dtype, rows, cols);
      HostTensor x = random_tensor(dtype, {rows, cols}, 1, 0.02);
      for (int64_t i = 0; i < cols; ++i) x.set(i, 30 * x[i]);                             // a row of another scale
      for (int64_t i = (rows - 1) * cols; rows > 3 && i < rows * cols; ++i) x.set(i, 0);  // and one of zeros
      const Rounded r = round_to_int8(x, rows, cols);
      for (int64_t o = 0; o < rows; ++o) {
        double most = 0;
        for (int64_t i = 0; i < cols; ++i) most = std::max(most, std::abs(x[o * cols + i]));
        if (most > 0) REQUIRE(std::abs(r.scales[o] * 127 / most - 1) < 1e-6);
        for (int64_t i = o * cols; i < (o + 1) * cols; ++i) {
          REQUIRE(std::abs(r.y[i]) <= 127);
          REQUIRE(std::abs(r.y[i] * r.scales[o] - x[i]) <= 0.5001 * r.scales[o]);
        }
      }
    }
}

TEST_CASE("products with 8-bit weights are the sums of the numbers that these stand for") {
  Device device(tested_place());
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int64_t n : {1, 2, 3, 4, 5, 9, 13, 23})
      for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{1, 1}, {5, 31}, {33, 64}, {70, 200}, {130, 517}})
        for (const bool with_bias : {false, true}) {
          CAPTURE(dtype, n, outputs, inputs, with_bias);
          const HostTensor x = random_tensor(dtype, {n, inputs}, 2), bias = random_tensor(Dtype::f32, {outputs}, 3);
          const Rounded w = round_to_int8(random_tensor(Dtype::f32, {outputs, inputs}, 4, 0.1), outputs, inputs);
          for (const Dtype out : {Dtype::f32, dtype}) {
            HostTensor y(out, {n, outputs});
            run(device.compute(),
                Int8Product{.y = y, .x = x, .w = w.y, .scales = w.scales, .bias = with_bias ? bias.tensor() : Tensor{}});
            settle();
            Doubles wanted;
            for (int64_t r = 0; r < n; ++r)
              for (int64_t o = 0; o < outputs; ++o) {
                double sum = 0;
                for (int64_t i = 0; i < inputs; ++i) sum += w.y[o * inputs + i] * x[r * inputs + i];
                wanted.push_back(sum * w.scales[o] + (with_bias ? bias[o] : 0));
              }
            REQUIRE(error_of(y, wanted) < (out == Dtype::f32 ? 2e-6 : 1.01 * rounding(out)));
          }
        }
}

TEST_CASE("a row of a product has the same bits beside any others, for any number of threads") {
  const int64_t outputs = 300, inputs = 333, n = 19;
  const HostTensor x = random_tensor(Dtype::f32, {n, inputs}, 5);
  const Rounded w = round_to_int8(random_tensor(Dtype::f32, {outputs, inputs}, 6), outputs, inputs);
  Device device(tested_place());
  HostTensor all(Dtype::f32, {n, outputs});
  run(device.compute(), Int8Product{.y = all, .x = x, .w = w.y, .scales = w.scales});
  for (const int threads : {1, 3}) {
    const Threads some(threads);
    for (int64_t r = 0; r < n; ++r) {
      HostTensor one(Dtype::f32, {1, outputs});
      run(device.compute(), Int8Product{.y = one, .x = x.tensor().slice(r, r + 1), .w = w.y, .scales = w.scales});
      settle();
      for (int64_t o = 0; o < outputs; ++o) REQUIRE(one[o] == all[r * outputs + o]);
    }
  }
}

TEST_CASE("a weight that is not finite makes its outputs so, and no others") {
  Device device(tested_place());
  for (const double bad : {double{NAN}, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    HostTensor weights = random_tensor(Dtype::f32, {3, 100}, 7);
    weights.set(150, bad);
    const Rounded w = round_to_int8(weights, 3, 100);
    const HostTensor x = random_tensor(Dtype::f32, {1, 100}, 8), y(Dtype::f32, {1, 3});
    run(device.compute(), Int8Product{.y = y, .x = x, .w = w.y, .scales = w.scales});
    settle();
    CHECK(std::isfinite(y[0]));
    CHECK(!std::isfinite(y[1]));
    CHECK(std::isfinite(y[2]));
  }
}
