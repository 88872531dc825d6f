#include "kernels/ops/quantize.h"

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/quantize.h"

using namespace trireme;

namespace {

const Dtype kFormats[] = {Dtype::e4m3, Dtype::e5m2};

double as_8_bits(Dtype dtype, float x) { return dtype == Dtype::e4m3 ? static_cast<float>(E4m3(x)) : static_cast<float>(E5m2(x)); }

struct Outcome {
  HostTensor scale, y, transposed;
};
Outcome quantize(const HostTensor& x, Dtype dtype) {
  Device device(tested_place());
  const int64_t rows = x.tensor().rows(), cols = x.tensor().cols();
  Outcome o{
      .scale = HostTensor(Dtype::f32, {1}), .y = HostTensor(dtype, {rows, cols}), .transposed = HostTensor(dtype, {cols, rows})};
  run(device.compute(), Quantize{.scale = o.scale, .x = x, .y = o.y, .transposed = o.transposed});
  return o;
}

}  // namespace

TEST_CASE("a float becomes the nearest 8-bit number, of two as near the even one, and none beyond the largest") {
  for (const Dtype dtype : kFormats) {
    const Doubles numbers = reference::numbers_of_8_bits(dtype);
    std::vector<float> floats{0, -0.0f, 1e-30f, 1e30f, -1e30f, std::numeric_limits<float>::max()};
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto at = static_cast<float>(numbers[i]);
      floats.insert(floats.end(), {at, -at, std::nextafter(at, 0.0f), std::nextafter(at, 1e30f)});
      if (i == 0) continue;
      const auto middle = static_cast<float>((numbers[i - 1] + numbers[i]) / 2);
      floats.insert(floats.end(), {middle, -middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e30f)});
    }
    for (uint64_t i = 0; i < 2000; ++i)
      floats.push_back(static_cast<float>(std::ldexp(normal(1, i), static_cast<int>(philox64(2, i) % 40) - 22)));
    for (const float x : floats) {
      INFO(name_of(dtype) << " " << x);
      const double got = as_8_bits(dtype, x), wanted = reference::nearest_of_8_bits(dtype, x);
      REQUIRE(got == wanted);
      REQUIRE(std::signbit(got) == std::signbit(x));
    }
    CHECK(std::isnan(as_8_bits(dtype, NAN)));
    CHECK(as_8_bits(dtype, -std::numeric_limits<float>::infinity()) == -numbers.back());
  }
  CHECK(std::isinf(static_cast<float>(std::bit_cast<E5m2>(uint8_t{0x7c}))));
  CHECK(E4m3::largest() == 448);
  CHECK(E5m2::largest() == 57344);
}

TEST_CASE("a tensor is scaled to the 8-bit range and rounded, as it is and transposed, to the bits of its double reference") {
  for (const Dtype dtype : kFormats)
    for (const Dtype from : {Dtype::f32, Dtype::bf16})
      for (const auto& [rows, cols] : {std::pair(1, 1), {3, 7}, {16, 8}, {17, 64}, {128, 64}, {144, 136}, {130, 65}, {300, 9}}) {
        INFO(name_of(from) << " to " << name_of(dtype) << " " << rows << " x " << cols);
        const HostTensor x = random_tensor(from, {rows, cols}, 1, 1e-3);
        const reference::Quantized wanted = reference::quantize(dtype, x.values());
        const Outcome o = quantize(x, dtype);
        REQUIRE(o.scale[0] == wanted.scale);
        REQUIRE(o.y.values() == wanted.y);
        REQUIRE(o.transposed.values() == reference::transpose(wanted.y, rows, cols));
      }
}

TEST_CASE("a tensor in 8 bits alone, or its transpose alone, is what both together are") {
  Device device(tested_place());
  for (const auto& [rows, cols] : {std::pair(33, 21), {32, 24}}) {
    const HostTensor x = random_tensor(Dtype::bf16, {rows, cols}, 2);
    const Outcome both = quantize(x, Dtype::e5m2);
    HostTensor y(Dtype::e5m2, {rows, cols}), transposed(Dtype::e5m2, {cols, rows}), scale(Dtype::f32, {1});
    run(device.compute(), Quantize{.scale = scale, .x = x, .y = y});
    CHECK((y == both.y && scale == both.scale));
    run(device.compute(), Quantize{.scale = scale, .x = x, .transposed = transposed});
    CHECK((transposed == both.transposed && scale == both.scale));
  }
}

TEST_CASE("zeros stay zeros in 8 bits, and what is not finite is not hidden") {
  for (const Dtype dtype : kFormats) {
    const Outcome zeros = quantize(HostTensor(Dtype::bf16, {20, 16}), dtype);
    CHECK(zeros.y.values() == Doubles(320));
    CHECK(zeros.scale[0] > 0);
    for (const double bad : {double{NAN}, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      HostTensor x = random_tensor(Dtype::bf16, {20, 16}, 3);
      x.set(177, bad);
      const Outcome o = quantize(x, dtype);
      for (const int64_t i : {int64_t{177}, int64_t{0}}) CHECK(!std::isfinite(o.y[i] * o.scale[0]));
    }
  }
}

TEST_CASE("quantize refuses shapes and dtypes that do not fit") {
  Device device(tested_place());
  Stream& lane = device.compute();
  HostTensor x(Dtype::bf16, {4, 6}), y(Dtype::e4m3, {4, 6}), other(Dtype::e5m2, {6, 4}), scale(Dtype::f32, {1}),
      half(Dtype::bf16, {4, 6});
  HostTensor two(Dtype::f32, {2});
  CHECK_THROWS_AS(run(lane, Quantize{.scale = scale, .x = x}), Error);
  CHECK_THROWS_AS(run(lane, Quantize{.scale = scale, .x = x, .y = y, .transposed = other}), Error);
  CHECK_THROWS_AS(run(lane, Quantize{.scale = scale, .x = x, .y = half}), Error);
  CHECK_THROWS_AS(run(lane, Quantize{.scale = scale, .x = y, .y = y}), Error);
  CHECK_THROWS_AS(run(lane, Quantize{.scale = scale, .x = x, .transposed = y}), Error);
  CHECK_THROWS_AS(run(lane, Quantize{.scale = two, .x = x, .y = y}), Error);
}

TEST_CASE("quantize on place none counts the bytes that it has to move") {
  Device none(Place::none);
  run(none.compute(), Quantize{.scale = imagined(Dtype::f32, {1}),
                               .x = imagined(Dtype::bf16, {30, 20}),
                               .y = imagined(Dtype::e4m3, {30, 20}),
                               .transposed = imagined(Dtype::e4m3, {20, 30})});
  CHECK(none.tally().at("quantize").bytes == 4 + 1200 + 600 + 600);
}
