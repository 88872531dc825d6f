#include "kernels/ops/compress.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

namespace {

const int64_t kCodeWidths[] = {Codes::kInt8, Codes::kBf16};

struct Compressed {
  HostTensor codes, next, said;
};

Compressed compress(const HostTensor& x, const HostTensor* rest, int64_t width) {
  Device device(tested_place());
  const int64_t n = x.size();
  Compressed o{.codes = HostTensor(Dtype::i32, {Codes::blocks(n), width}),
               .next = HostTensor(Dtype::bf16, {n}),
               .said = HostTensor(Dtype::f32, {n})};
  run(device.compute(), Encode{.codes = o.codes, .x = x, .rest = rest == nullptr ? Tensor{} : rest->tensor(), .next = o.next});
  run(device.compute(), Decode{.y = o.said, .codes = o.codes});
  settle();
  return o;
}

double largest_of_block(const Doubles& v, int64_t i) {
  double most = 0;
  const auto block = static_cast<size_t>(i / Codes::kBlock * Codes::kBlock);
  for (size_t k = block; k < std::min(v.size(), block + Codes::kBlock); ++k) most = std::max(most, std::abs(v[k]));
  return most;
}

}  // namespace

TEST_CASE("codes say the nearest multiple of a block's scale, and the rest is what they leave out") {
  for (const int64_t width : kCodeWidths)
    for (const int64_t n : {1, 7, 255, 256, 257, 1000, 5120, 70001})
      for (const bool with_rest : {false, true}) {
        CAPTURE(width, n, with_rest);
        HostTensor x = random_tensor(Dtype::f32, {n}, 1, 1e-3);
        for (int64_t i = 0; i < n; i += 300) x.set(i, 20 * x[i]);  // blocks of other scales
        const HostTensor rest = random_tensor(Dtype::bf16, {n}, 2, 1e-4);
        const Compressed o = compress(x, with_rest ? &rest : nullptr, width);
        Doubles v = x.values();
        for (int64_t i = 0; with_rest && i < n; ++i) v[static_cast<size_t>(i)] += rest[i];
        for (int64_t i = 0; i < n; ++i) {
          const double value = v[static_cast<size_t>(i)], said = o.said[i];
          if (width == Codes::kInt8) {
            const double scale = largest_of_block(v, i) / 127, code = said / scale;
            REQUIRE(std::abs(said - value) <= 0.5001 * scale);
            REQUIRE(std::abs(code - std::round(code)) < 1e-4);
            REQUIRE(std::abs(code) < 127.001);
            REQUIRE(std::abs(o.next[i] - (value - said)) <= 1.01 * rounding(Dtype::bf16) * std::abs(value - said) + 1e-5 * scale);
          } else {
            REQUIRE(std::abs(said - value) <= rounding(Dtype::bf16) * std::abs(value) * 1.001);
            REQUIRE(std::abs(o.next[i] - (value - said)) <=
                    1.01 * rounding(Dtype::bf16) * std::abs(value - said) + 1e-6 * std::abs(value));
          }
        }
      }
}

TEST_CASE("what is left out of each sum is added to the next, so that many together lose nothing") {
  constexpr int64_t n = 1000;
  constexpr int kSteps = 50;
  for (const int64_t width : kCodeWidths) {
    HostTensor rest(Dtype::bf16, {n});
    Doubles given(n), said(n);
    for (int step = 0; step < kSteps; ++step) {
      const HostTensor x = random_tensor(Dtype::f32, {n}, static_cast<uint64_t>(10 + step));
      const Compressed o = compress(x, &rest, width);
      for (int64_t i = 0; i < n; ++i) given[static_cast<size_t>(i)] += x[i], said[static_cast<size_t>(i)] += o.said[i];
      rest = o.next;
    }
    double worst = 0;
    for (int64_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(given[static_cast<size_t>(i)] - said[static_cast<size_t>(i)] - rest[i]));
    CHECK(worst < 2e-3);  // kSteps rests rounded to bf16
  }
}

TEST_CASE("codes of several ranks are summed in the ranks' order with what the own rank has") {
  Device device(tested_place());
  for (const int64_t width : kCodeWidths)
    for (const int64_t n : {5, 256, 600})
      for (const int64_t ranks : {1, 2, 3, 8})
        for (const int64_t rank : {int64_t{0}, ranks - 1}) {
          CAPTURE(width, n, ranks, rank);
          const int64_t used = Codes::blocks(n), blocks = used + (ranks == 3 ? 2 : 0);  // with room for more
          const HostTensor rest = random_tensor(Dtype::bf16, {n}, 3, 0.1);
          HostTensor y = random_tensor(Dtype::f32, {n}, 4), codes(Dtype::i32, {ranks * blocks, width});
          std::vector<float> wanted(static_cast<size_t>(n));
          for (int64_t r = 0; r < ranks; ++r) {
            const Compressed o = compress(random_tensor(Dtype::f32, {n}, static_cast<uint64_t>(20 + r)), nullptr, width);
            const Tensor from = o.codes, to = codes.tensor().slice(r * blocks, r * blocks + used);
            if (r != rank) std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
            for (int64_t i = 0; i < n; ++i)
              wanted[static_cast<size_t>(i)] +=
                  r == rank ? static_cast<float>(y[i]) + static_cast<float>(rest[i]) : static_cast<float>(o.said[i]);
          }
          run(device.compute(),
              SumCodes{.y = y, .rest = rest, .codes = ranks == 1 ? Tensor{} : codes.tensor(), .rank = rank, .ranks = ranks});
          settle();
          double worst = 0;
          for (int64_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(y[i] - wanted[static_cast<size_t>(i)]));
          CHECK(worst < 1e-5);
        }
}

TEST_CASE("numbers that are not finite are not hidden by codes, and zeros stay zeros") {
  for (const int64_t width : kCodeWidths) {
    CHECK(compress(HostTensor(Dtype::f32, {300}), nullptr, width).said.values() == Doubles(300));
    for (const double bad : {double{NAN}, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      HostTensor x = random_tensor(Dtype::f32, {600}, 5);
      x.set(300, bad);
      const Compressed o = compress(x, nullptr, width);
      CHECK(!std::isfinite(o.said[300]));
      CHECK(std::isfinite(o.said[100]));
    }
  }
}

TEST_CASE("what is kept from step to step stays as it was if a step is skipped") {
  Device device(tested_place());
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const bool passes : {false, true}) {
      const HostTensor before = random_tensor(dtype, {1001}, 6), next = random_tensor(dtype, {1001}, 7);
      HostTensor kept = before, gate(Dtype::f32, {Gate::kSize}, {1, passes ? 1.0 : 0.0, 1, 0});
      run(device.compute(), KeepIfPassed{.kept = kept, .next = next, .gate = gate});
      settle();
      CHECK((kept == (passes ? next : before)));
    }
}

TEST_CASE("compression refuses shapes that do not fit, and counts its bytes") {
  Device device(tested_place());
  Stream& lane = device.compute();
  HostTensor x(Dtype::f32, {300}), rest(Dtype::bf16, {300}), few(Dtype::i32, {1, Codes::kInt8}),
      codes(Dtype::i32, {2, Codes::kInt8}), wide(Dtype::i32, {2, 7});
  CHECK_THROWS_AS(run(lane, Encode{.codes = few, .x = x, .next = rest}), Error);
  CHECK_THROWS_AS(run(lane, Encode{.codes = wide, .x = x, .next = rest}), Error);
  CHECK_THROWS_AS(run(lane, Encode{.codes = codes, .x = rest, .next = rest}), Error);
  CHECK_THROWS_AS(run(lane, SumCodes{.y = x, .rest = rest, .codes = codes, .rank = 2, .ranks = 2}), Error);
  Device none(Place::none);
  run(none.compute(), Encode{.codes = imagined(Dtype::i32, {2, Codes::kInt8}),
                               .x = imagined(Dtype::f32, {300}),
                               .rest = imagined(Dtype::bf16, {300}),
                               .next = imagined(Dtype::bf16, {300})});
  CHECK(none.tally().at("encode").bytes == 2 * 65 * 4 + 300 * (4 + 2 + 2));
}
