#include "kernels/ops/layernorm.h"

#include "kernels/device.h"
#include "test/catch.h"
#include "test/kernels/norms.h"
#include "test/reference/compare.h"
#include "test/reference/layernorm.h"

using namespace trireme;

namespace {

// A few roundings of f32 on sums of up to some hundred terms; in bf16 only the last rounding counts.
double layernorm_bound(Dtype dtype) { return dtype == Dtype::bf16 ? 1.01 * rounding(dtype) : 2e-6; }

}  // namespace

TEST_CASE("layernorm matches its double reference, with and without a residual") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const auto& [rows, cols] : norm_shapes()) {
    CAPTURE(name_of(stream), name_of(dtype), rows, cols);
    const HostTensor x = random_tensor(stream, {rows, cols}, 1, 3), residual = random_tensor(dtype, {rows, cols}, 2);
    const HostTensor gain = random_tensor(Dtype::f32, {cols}, 3), bias = random_tensor(Dtype::f32, {cols}, 4);
    HostTensor y(dtype, {rows, cols}), mean(Dtype::f32, {rows}), inv_std(Dtype::f32, {rows}), sum(stream, {rows, cols}), again = y;
    const auto holds = [&](const HostTensor& of) {
      const reference::LayerNorm wanted = reference::layernorm(of.values(), gain.values(), bias.values(), kNormEps);
      return close(y, wanted.y, layernorm_bound(dtype) + longer_error(cols)) && close(mean, wanted.mean, 1e-5 * longer_sum(cols)) &&
             close(inv_std, wanted.inv_std, inverse_bound(cols));
    };
    run(device.compute(), LayerNormForward{.y = y, .mean = mean, .inv_std = inv_std, .x = x, .gain = gain, .bias = bias});
    REQUIRE(holds(x));
    LayerNormForward fused{.y = y,
                           .mean = mean,
                           .inv_std = inv_std,
                           .sum = sum,
                           .x = x,
                           .gain = gain,
                           .bias = bias,
                           .residual = residual,
                           .eps = kNormEps};
    run(device.compute(), fused);
    for (int64_t i = 0; i < sum.size(); ++i) {
      HostTensor rounded(stream, {1}, {static_cast<float>(x[i]) + static_cast<float>(residual[i])});
      REQUIRE(sum[i] == rounded[0]);
    }
    REQUIRE(holds(sum));
    fused.y = again;
    run(device.compute(), fused);
    REQUIRE(again == y);
  }
}

TEST_CASE("layernorm's backward matches its double reference, adds to dgain and dbias, and may write over dy, dsum or x") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const auto& [rows, cols] : norm_shapes()) {
    CAPTURE(name_of(stream), name_of(dtype), rows, cols);
    const HostTensor x = random_tensor(stream, {rows, cols}, 1, 3), gain = random_tensor(Dtype::f32, {cols}, 2);
    HostTensor dy = random_tensor(dtype, {rows, cols}, 3), dsum = random_tensor(stream, {rows, cols}, 4);
    const reference::LayerNorm forward =
        reference::layernorm(x.values(), gain.values(), Doubles(static_cast<size_t>(cols)), kNormEps);
    const HostTensor mean(Dtype::f32, {rows}, forward.mean), inv_std(Dtype::f32, {rows}, forward.inv_std);
    const reference::LayerNormGradients wanted = reference::layernorm_backward(dy.values(), x.values(), gain.values(), kNormEps);
    HostTensor dx(stream, {rows, cols}), dgain = random_tensor(Dtype::f32, {cols}, 5), dbias = random_tensor(Dtype::f32, {cols}, 6);
    const HostTensor dgain_before = dgain, dbias_before = dbias;
    const auto backward = [&](const HostTensor& to, const Tensor& other) {
      dgain = dgain_before, dbias = dbias_before;
      run(device.compute(), LayerNormBackward{.dx = to,
                                              .dgain = dgain,
                                              .dbias = dbias,
                                              .dy = dy,
                                              .x = x,
                                              .gain = gain,
                                              .mean = mean,
                                              .inv_std = inv_std,
                                              .dsum = other});
    };
    backward(dx, {});
    REQUIRE(within(dx, wanted.dx, inv_std, stream));
    REQUIRE(close(dgain, added(dgain_before.values(), wanted.dgain), 1e-5));
    REQUIRE(close(dbias, added(dbias_before.values(), wanted.dbias), 2e-6));
    backward(dx, dsum.tensor());
    REQUIRE(within(dx, added(wanted.dx, dsum.values()), inv_std, stream));
    const HostTensor gain_after = dgain, bias_after = dbias;
    backward(dsum, dsum.tensor());
    REQUIRE((dsum == dx && dgain == gain_after && dbias == bias_after));
    backward(dx, {});
    HostTensor over_x = x, other_gain = dgain, other_bias = dbias;
    run(device.compute(), LayerNormBackward{.dx = over_x,
                                            .dgain = other_gain,
                                            .dbias = other_bias,
                                            .dy = dy,
                                            .x = over_x,
                                            .gain = gain,
                                            .mean = mean,
                                            .inv_std = inv_std});
    REQUIRE(over_x == dx);
    if (stream != dtype) continue;
    backward(dy, {});
    REQUIRE((dy == dx && dgain == gain_after && dbias == bias_after));
  }
}

TEST_CASE("layernorm's bits do not depend on the number of threads") {
  Device device(tested_place());
  const int64_t rows = thorough() ? 333 : 40, cols = 257;
  const HostTensor x = random_tensor(Dtype::f32, {rows, cols}, 1), gain = random_tensor(Dtype::f32, {cols}, 2),
                   dy = random_tensor(Dtype::f32, {rows, cols}, 3);
  std::vector<HostTensor> results;
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    HostTensor y(Dtype::f32, {rows, cols}), mean(Dtype::f32, {rows}), inv_std = mean, dx = y, dgain(Dtype::f32, {cols}),
                                                                      dbias = dgain;
    run(device.compute(), LayerNormForward{.y = y, .mean = mean, .inv_std = inv_std, .x = x, .gain = gain, .bias = gain});
    run(device.compute(),
        LayerNormBackward{
            .dx = dx, .dgain = dgain, .dbias = dbias, .dy = dy, .x = x, .gain = gain, .mean = mean, .inv_std = inv_std});
    for (const HostTensor& t : {y, mean, inv_std, dx, dgain, dbias}) results.push_back(t);
  }
  for (size_t i = 6; i < results.size(); ++i) CHECK(results[i] == results[i % 6]);
}

TEST_CASE("layernorm keeps its digits where the mean is large, and a constant row becomes the bias") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {2, 4}, {10000, 10001, 10002, 10003, 7, 7, 7, 7}), gain(Dtype::f32, {4}, {1, 1, 1, 1}),
      bias(Dtype::f32, {4}, {1, 2, 3, 4}), y(Dtype::f32, {2, 4}), mean(Dtype::f32, {2}), inv_std(Dtype::f32, {2});
  run(device.compute(), LayerNormForward{.y = y, .mean = mean, .inv_std = inv_std, .x = x, .gain = gain, .bias = bias});
  CHECK(close(y, reference::layernorm(x.values(), gain.values(), bias.values(), kNormEps).y, 1e-6));
  CHECK(Doubles{y[4], y[5], y[6], y[7]} == bias.values());
}

TEST_CASE("layernorm's reference backward agrees with finite differences") {
  const Doubles x = random_doubles(4 * 7, 1), gain = random_doubles(7, 2), bias = random_doubles(7, 3),
                dy = random_doubles(4 * 7, 4);
  const reference::LayerNormGradients g = reference::layernorm_backward(dy, x, gain, 0.1);
  const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
    return dot(reference::layernorm(a, b, c, 0.1).y, dy);
  };
  CHECK(close(g.dx, finite_differences([&](const Doubles& at) { return loss(at, gain, bias); }, x), 1e-8));
  CHECK(close(g.dgain, finite_differences([&](const Doubles& at) { return loss(x, at, bias); }, gain), 1e-8));
  CHECK(close(g.dbias, finite_differences([&](const Doubles& at) { return loss(x, gain, at); }, bias), 1e-8));
}

TEST_CASE("layernorm refuses shapes that do not fit, does nothing with no rows, and counts its bytes on place none") {
  Device device(tested_place()), none(Place::none);
  HostTensor x(Dtype::f32, {2, 3}), row(Dtype::f32, {3}), two(Dtype::f32, {2}), half(Dtype::bf16, {2, 3});
  LayerNormForward good{.y = x, .mean = two, .inv_std = two, .x = x, .gain = row, .bias = row}, bad = good;
  bad.mean = row;
  CHECK_THROWS_AS(run(device.compute(), bad), Error);
  bad = good, bad.x = half;
  CHECK_THROWS_AS(run(device.compute(), bad), Error);
  bad = good, bad.bias = two;
  CHECK_THROWS_AS(run(device.compute(), bad), Error);
  bad = good, bad.sum = x;
  CHECK_THROWS_AS(run(device.compute(), bad), Error);
  CHECK_THROWS_AS(
      run(device.compute(),
          LayerNormBackward{.dx = x, .dgain = two, .dbias = row, .dy = x, .x = x, .gain = row, .mean = two, .inv_std = two}),
      Error);
  HostTensor empty(Dtype::f32, {0, 3}), nothing(Dtype::f32, {0}), dgain(Dtype::f32, {3}, {1, 2, 3}), dbias = dgain;
  run(device.compute(), LayerNormForward{.y = empty, .mean = nothing, .inv_std = nothing, .x = empty, .gain = row, .bias = row});
  run(device.compute(),
      LayerNormBackward{
          .dx = empty, .dgain = dgain, .dbias = dbias, .dy = empty, .x = empty, .gain = row, .mean = nothing, .inv_std = nothing});
  CHECK((dgain.values() == Doubles{1, 2, 3} && dbias == dgain));
  const Tensor wide = imagined(Dtype::bf16, {4, 8}), line = imagined(Dtype::f32, {8}), column = imagined(Dtype::f32, {4});
  run(none.compute(), LayerNormForward{.y = wide, .mean = column, .inv_std = column, .x = wide, .gain = line, .bias = line});
  CHECK(none.tally().at("layernorm").bytes == 64 + 16 + 16 + 64 + 32 + 32);
}
