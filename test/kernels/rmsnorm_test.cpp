#include "kernels/ops/rmsnorm.h"

#include "kernels/device.h"
#include "test/catch.h"
#include "test/kernels/norms.h"
#include "test/reference/compare.h"
#include "test/reference/rmsnorm.h"

using namespace trireme;

namespace {

// A few roundings of f32 on sums of up to some hundred terms; in bf16 only the last rounding counts.
double rmsnorm_bound(Dtype dtype) { return dtype == Dtype::bf16 ? 1.01 * rounding(dtype) : 1e-6; }

// x + residual as specified by the op: the f32 sum, rounded once more to the dtype.
HostTensor sum_of(const HostTensor& x, const HostTensor& residual, Dtype dtype, int64_t rows, int64_t cols) {
  HostTensor sum(dtype, {rows, cols});
  for (int64_t i = 0; i < sum.size(); ++i) sum.set(i, static_cast<float>(x[i]) + static_cast<float>(residual[i]));
  return sum;
}

}  // namespace

TEST_CASE("rmsnorm matches its double reference, with and without a residual") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const auto& [rows, cols] : norm_shapes()) {
    CAPTURE(name_of(stream), name_of(dtype), rows, cols);
    const HostTensor x = random_tensor(stream, {rows, cols}, 1, 3), residual = random_tensor(dtype, {rows, cols}, 2);
    const HostTensor gain = random_tensor(Dtype::f32, {cols}, 3);
    HostTensor y(dtype, {rows, cols}), inv_rms(Dtype::f32, {rows}), sum(stream, {rows, cols}), again = y;
    run(device.compute(), RmsNormForward{.y = y, .inv_rms = inv_rms, .x = x, .gain = gain, .eps = kNormEps});
    reference::RmsNorm wanted = reference::rmsnorm(x.values(), gain.values(), kNormEps);
    REQUIRE(close(y, wanted.y, rmsnorm_bound(dtype) + longer_error(cols)));
    REQUIRE(close(inv_rms, wanted.inv_rms, inverse_bound(cols)));

    run(device.compute(), RmsNormForward{.y = y, .inv_rms = inv_rms, .sum = sum, .x = x, .gain = gain, .residual = residual});
    REQUIRE(sum == sum_of(x, residual, stream, rows, cols));
    wanted = reference::rmsnorm(sum.values(), gain.values(), kNormEps);
    REQUIRE(close(y, wanted.y, rmsnorm_bound(dtype) + longer_error(cols)));
    REQUIRE(close(inv_rms, wanted.inv_rms, inverse_bound(cols)));
    run(device.compute(), RmsNormForward{.y = again, .inv_rms = inv_rms, .sum = sum, .x = x, .gain = gain, .residual = residual});
    REQUIRE(again == y);
  }
}

TEST_CASE("rmsnorm's backward matches its double reference, adds to dgain, and may write over dy, dsum or x") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const auto& [rows, cols] : norm_shapes()) {
    CAPTURE(name_of(stream), name_of(dtype), rows, cols);
    const HostTensor x = random_tensor(stream, {rows, cols}, 1, 3), gain = random_tensor(Dtype::f32, {cols}, 2);
    HostTensor dy = random_tensor(dtype, {rows, cols}, 3), dsum = random_tensor(stream, {rows, cols}, 4);
    const HostTensor inv_rms(Dtype::f32, {rows}, reference::rmsnorm(x.values(), gain.values(), kNormEps).inv_rms);
    const reference::RmsNormGradients wanted = reference::rmsnorm_backward(dy.values(), x.values(), gain.values(), kNormEps);
    HostTensor dx(stream, {rows, cols}), dgain = random_tensor(Dtype::f32, {cols}, 5);
    const HostTensor before = dgain;
    const auto backward = [&](const HostTensor& to, const Tensor& other) {
      dgain = before;
      run(device.compute(),
          RmsNormBackward{.dx = to, .dgain = dgain, .dy = dy, .x = x, .gain = gain, .inv_rms = inv_rms, .dsum = other});
      return dgain;
    };
    backward(dx, {});
    REQUIRE(within(dx, wanted.dx, inv_rms, stream));
    REQUIRE(close(dgain, added(before.values(), wanted.dgain), 2e-6));
    const HostTensor sums = backward(dx, dsum.tensor());
    REQUIRE(within(dx, added(wanted.dx, dsum.values()), inv_rms, stream));
    REQUIRE(backward(dsum, dsum.tensor()) == sums);
    REQUIRE(dsum == dx);
    backward(dx, {});
    HostTensor over_x = x;
    run(device.compute(), RmsNormBackward{.dx = over_x, .dgain = dgain, .dy = dy, .x = over_x, .gain = gain, .inv_rms = inv_rms});
    REQUIRE(over_x == dx);
    if (stream != dtype) continue;
    backward(dy, {});
    REQUIRE(dy == dx);
  }
}

TEST_CASE("rmsnorm's bits do not depend on the number of threads") {
  Device device(tested_place());
  const int64_t rows = 333, cols = 257;
  const HostTensor x = random_tensor(Dtype::bf16, {rows, cols}, 1), gain = random_tensor(Dtype::f32, {cols}, 2),
                   dy = random_tensor(Dtype::bf16, {rows, cols}, 3);
  std::vector<HostTensor> results;
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    HostTensor y(Dtype::bf16, {rows, cols}), inv_rms(Dtype::f32, {rows}), dx = y, dgain(Dtype::f32, {cols});
    run(device.compute(), RmsNormForward{.y = y, .inv_rms = inv_rms, .x = x, .gain = gain});
    run(device.compute(), RmsNormBackward{.dx = dx, .dgain = dgain, .dy = dy, .x = x, .gain = gain, .inv_rms = inv_rms});
    for (const HostTensor& t : {y, inv_rms, dx, dgain}) results.push_back(t);
  }
  for (size_t i = 4; i < results.size(); ++i) CHECK(results[i] == results[i % 4]);
}

TEST_CASE("rmsnorm of a row of zeros is zero, and of a large row finite") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {2, 3}, {0, 0, 0, 1e15, -1e15, 1e15}), gain(Dtype::f32, {3}, {1, 2, 3}), y(Dtype::f32, {2, 3}),
      inv_rms(Dtype::f32, {2});
  run(device.compute(), RmsNormForward{.y = y, .inv_rms = inv_rms, .x = x, .gain = gain});
  CHECK(close(y, {0, 0, 0, 1, -2, 3}, 1e-6));
}

TEST_CASE("rmsnorm's reference backward agrees with finite differences") {
  const Doubles x = random_doubles(4 * 7, 1), gain = random_doubles(7, 2), dy = random_doubles(4 * 7, 3);
  const reference::RmsNormGradients g = reference::rmsnorm_backward(dy, x, gain, 0.1);
  CHECK(close(g.dx, finite_differences([&](const Doubles& at) { return dot(reference::rmsnorm(at, gain, 0.1).y, dy); }, x), 1e-8));
  CHECK(
      close(g.dgain, finite_differences([&](const Doubles& at) { return dot(reference::rmsnorm(x, at, 0.1).y, dy); }, gain), 1e-8));
}

TEST_CASE("rmsnorm refuses shapes that do not fit, does nothing with no rows, and counts its bytes on place none") {
  Device device(tested_place()), none(Place::none);
  HostTensor x(Dtype::f32, {2, 3}), gain(Dtype::f32, {3}), two(Dtype::f32, {2}), half(Dtype::bf16, {2, 3});
  CHECK_THROWS_AS(run(device.compute(), RmsNormForward{.y = x, .inv_rms = gain, .x = x, .gain = gain}), Error);
  CHECK_THROWS_AS(run(device.compute(), RmsNormForward{.y = x, .inv_rms = two, .x = half, .gain = gain}), Error);
  CHECK_THROWS_AS(run(device.compute(), RmsNormForward{.y = x, .inv_rms = two, .x = x, .gain = two}), Error);
  CHECK_THROWS_AS(run(device.compute(), RmsNormForward{.y = x, .inv_rms = two, .x = x, .gain = gain, .residual = x}), Error);
  CHECK_THROWS_AS(run(device.compute(), RmsNormBackward{.dx = x, .dgain = two, .dy = x, .x = x, .gain = gain, .inv_rms = two}),
                  Error);
  HostTensor empty(Dtype::f32, {0, 3}), nothing(Dtype::f32, {0}), dgain(Dtype::f32, {3}, {1, 2, 3});
  run(device.compute(), RmsNormForward{.y = empty, .inv_rms = nothing, .x = empty, .gain = gain});
  run(device.compute(), RmsNormBackward{.dx = empty, .dgain = dgain, .dy = empty, .x = empty, .gain = gain, .inv_rms = nothing});
  CHECK(dgain.values() == Doubles{1, 2, 3});
  const Tensor wide = imagined(Dtype::bf16, {4, 8}), row = imagined(Dtype::f32, {8}), column = imagined(Dtype::f32, {4});
  run(none.compute(), RmsNormForward{.y = wide, .inv_rms = column, .x = wide, .gain = row});
  CHECK(none.tally().at("rmsnorm").bytes == 64 + 16 + 64 + 32);
}
