#include "kernels/ops/swiglu.h"

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/swiglu.h"

using namespace trireme;

namespace {

const std::vector<std::pair<int64_t, int64_t>> kSwigluShapes{{1, 1}, {3, 17}, {17, 63}, {100, 257}, {257, 100}, {1, 40001}};

double swiglu_bound(Dtype dtype) { return dtype == Dtype::bf16 ? 1.01 * rounding(dtype) : 8 * rounding(dtype); }

}  // namespace

TEST_CASE("swiglu matches its double reference") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const auto& [rows, width] : kSwigluShapes) {
    const HostTensor x = random_tensor(dtype, {rows, 2 * width}, 1, 2);
    HostTensor y(dtype, {rows, width}), again(dtype, {rows, width});
    run(device.compute(), SwiGluForward{.y = y, .x = x});
    REQUIRE(close(y, reference::swiglu(x.values(), width), swiglu_bound(dtype)));
    run(device.compute(), SwiGluForward{.y = again, .x = x});
    REQUIRE(y == again);
  }
}

TEST_CASE("swiglu's backward matches its double reference, also when it writes over x") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const auto& [rows, width] : kSwigluShapes) {
    HostTensor x = random_tensor(dtype, {rows, 2 * width}, 2, 2), dx = random_tensor(dtype, {rows, 2 * width}, 3);
    const HostTensor dy = random_tensor(dtype, {rows, width}, 4);
    run(device.compute(), SwiGluBackward{.dx = dx, .dy = dy, .x = x});
    REQUIRE(close(dx, reference::swiglu_backward(dy.values(), x.values(), width), swiglu_bound(dtype)));
    run(device.compute(), SwiGluBackward{.dx = x, .dy = dy, .x = x});
    REQUIRE(dx == x);
  }
}

TEST_CASE("swiglu of large gates is finite: the gate opens or closes") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {2, 2}, {200, 3, -200, 3}), y(Dtype::f32, {2, 1}), dy(Dtype::f32, {2, 1}, {1, 1}),
      dx(Dtype::f32, {2, 2});
  run(device.compute(), SwiGluForward{.y = y, .x = x});
  run(device.compute(), SwiGluBackward{.dx = dx, .dy = dy, .x = x});
  CHECK(y.values() == Doubles{600, 0});
  CHECK(dx.values() == Doubles{3, 200, 0, 0});
}

TEST_CASE("swiglu's reference backward agrees with finite differences") {
  const int64_t width = 7;
  const Doubles x = random_doubles(3 * 2 * width, 5), dy = random_doubles(3 * width, 6);
  const auto loss = [&](const Doubles& at) { return dot(reference::swiglu(at, width), dy); };
  CHECK(close(reference::swiglu_backward(dy, x, width), finite_differences(loss, x), 1e-8));
}

TEST_CASE("swiglu refuses shapes that do not fit and counts its bytes on place none") {
  Device device(tested_place()), none(Place::none);
  HostTensor x(Dtype::f32, {2, 6}), y(Dtype::f32, {2, 3}), odd(Dtype::f32, {2, 7}), half(Dtype::bf16, {2, 3});
  CHECK_THROWS_AS(run(device.compute(), SwiGluForward{.y = x, .x = x}), Error);
  CHECK_THROWS_AS(run(device.compute(), SwiGluForward{.y = y, .x = odd}), Error);
  CHECK_THROWS_AS(run(device.compute(), SwiGluForward{.y = half, .x = x}), Error);
  CHECK_THROWS_AS(run(device.compute(), SwiGluBackward{.dx = y, .dy = y, .x = x}), Error);
  const Tensor wide = imagined(Dtype::bf16, {3, 10}), narrow = imagined(Dtype::bf16, {3, 5});
  run(none.compute(), SwiGluForward{.y = narrow, .x = wide});
  run(none.compute(), SwiGluBackward{.dx = wide, .dy = narrow, .x = wide});
  CHECK(none.tally().at("swiglu").bytes == 90);
  CHECK(none.tally().at("swiglu_backward").bytes == 150);
}
