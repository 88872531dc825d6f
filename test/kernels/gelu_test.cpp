#include "kernels/ops/gelu.h"

#include <cmath>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/gelu.h"

using namespace trireme;

namespace {

const std::vector<int64_t> kGeluSizes{1, 3, 17, 63, 100, 257, 40001};

// f32: a few roundings. bf16: one rounding of the result, inputs being exact.
double bound(Dtype dtype) { return dtype == Dtype::bf16 ? 1.01 * rounding(dtype) : 8 * rounding(dtype); }

}  // namespace

TEST_CASE("gelu matches its double reference") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t n : kGeluSizes) {
    const HostTensor x = random_tensor(dtype, {n}, 1, 2);
    HostTensor y(dtype, {n}), again(dtype, {n});
    run(device.compute(), GeluForward{.y = y, .x = x});
    REQUIRE(close(y, reference::gelu(x.values()), bound(dtype)));
    run(device.compute(), GeluForward{.y = again, .x = x});
    REQUIRE(y == again);
  }
}

TEST_CASE("gelu's backward matches its double reference, also when it writes over dy or x") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t n : kGeluSizes) {
    const HostTensor x = random_tensor(dtype, {n}, 2, 2);
    HostTensor dy = random_tensor(dtype, {n}, 3), dx = random_tensor(dtype, {n}, 4);
    run(device.compute(), GeluBackward{.dx = dx, .dy = dy, .x = x});
    REQUIRE(close(dx, reference::gelu_backward(dy.values(), x.values()), bound(dtype)));
    HostTensor over_x = x;
    run(device.compute(), GeluBackward{.dx = over_x, .dy = dy, .x = over_x});
    REQUIRE(dx == over_x);
    run(device.compute(), GeluBackward{.dx = dy, .dy = dy, .x = x});
    REQUIRE(dx == dy);
  }
}

TEST_CASE("gelu of large arguments is the argument or zero, its slope one or zero") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  constexpr int64_t n = 16;
  const HostTensor x(dtype, {n},
                     {50, -50, 1e6, -1e6, 1e12, -1e12, 1e13, -1e13, 2e17, -2e17, 1e19, -1e19, 1e20, -1e20, 3e38, -3e38});
  HostTensor ones(dtype, {n}, Doubles(n, 1.0)), y(dtype, {n}), dx(dtype, {n});
  run(device.compute(), GeluForward{.y = y, .x = x});
  run(device.compute(), GeluBackward{.dx = dx, .dy = ones, .x = x});
  for (int64_t i = 0; i < n; i += 2) {
    CAPTURE(x[i], y[i], y[i + 1], dx[i], dx[i + 1]);
    CHECK((y[i] == x[i] && y[i + 1] == 0 && dx[i] == 1 && dx[i + 1] == 0));
  }
}

TEST_CASE("gelu keeps its relative precision far below zero, where 1 + tanh would cancel") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {1}, {-5.0}), y(Dtype::f32, {1});
  run(device.compute(), GeluForward{.y = y, .x = x});
  const double twice = 2 * std::sqrt(2 / 3.14159265358979323846) * (-5.0 - 0.044715 * 125);
  CHECK(y[0] == Approx(-5.0 / (1 + std::exp(-twice))).epsilon(1e-5));
}

TEST_CASE("gelu's reference backward agrees with finite differences") {
  const Doubles x = random_doubles(40, 5, 1.5), dy = random_doubles(40, 6);
  const auto loss = [&](const Doubles& at) { return dot(reference::gelu(at), dy); };
  CHECK(close(reference::gelu_backward(dy, x), finite_differences(loss, x), 1e-8));
}

TEST_CASE("gelu refuses shapes that do not fit and counts its bytes on place none") {
  Device device(tested_place()), none(Place::none);
  HostTensor x(Dtype::f32, {6}), other(Dtype::f32, {5}), half(Dtype::bf16, {6});
  CHECK_THROWS_AS(run(device.compute(), GeluForward{.y = other, .x = x}), Error);
  CHECK_THROWS_AS(run(device.compute(), GeluForward{.y = half, .x = x}), Error);
  CHECK_THROWS_AS(run(device.compute(), GeluBackward{.dx = x, .dy = other, .x = x}), Error);
  const Tensor t = imagined(Dtype::bf16, {3, 5});
  run(none.compute(), GeluForward{.y = t, .x = t});
  run(none.compute(), GeluBackward{.dx = t, .dy = t, .x = t});
  CHECK(none.tally().at("gelu").bytes == 60);
  CHECK(none.tally().at("gelu_backward").bytes == 90);
}
