#include "kernels/cpu/simd.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "kernels/cpu/normal.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

TEST_CASE("fast_reciprocal is right to 2e-7, and fast_sigmoid to 4e-7 where it is not below 1e-34") {
  double worst = 0, worst_sigmoid = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(std::exp2(-125 + 250 * unit(philox64(5, i)))),
               z = static_cast<float>(-79 + 179 * unit(philox64(6, i)));
    worst = std::max(worst, std::abs(static_cast<double>(fast_reciprocal(x)) * static_cast<double>(x) - 1));
    worst_sigmoid =
        std::max(worst_sigmoid, std::abs(static_cast<double>(fast_sigmoid(z)) * (1 + std::exp(-static_cast<double>(z))) - 1));
  }
  CHECK(worst < 2e-7);
  CHECK(worst_sigmoid < 4e-7);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK((fast_reciprocal(1) == 1 && fast_sigmoid(-81) == 0));
  CHECK((fast_sigmoid(-kInfinity) == 0 && fast_sigmoid(kInfinity) == 1 && fast_sigmoid(0) == 0.5f));
  CHECK(std::isnan(fast_sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("softmax_exp is right to 1e-7, zero where exp is subnormal, and lets a NaN through") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x{0, -0.0f, kNan, -kNan, -87.3366f, -88, -104, -1e4f, -1e30f, -kInfinity};
  for (uint64_t i = 0; i < 200000; ++i) x.push_back(static_cast<float>(-87.336 + 175.336 * unit(philox64(3, i))));
  std::vector<float> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = softmax_exp(x[i]);
  CHECK((y[0] == 1 && y[1] == 1 && std::isnan(y[2]) && std::isnan(y[3])));
  for (size_t i = 4; i < 10; ++i) CHECK(y[i] == 0);
  double worst = 0;
  for (size_t i = 10; i < x.size(); ++i) {
    const double wanted = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - wanted) / wanted);
  }
  CHECK(worst < 1e-7);
}

TEST_CASE("softmax_exp2 is right to 2e-7, zero where 2^x is subnormal, and lets a NaN through") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x{0, -0.0f, kNan, -kNan, -126.001f, -128, -150, -1e4f, -1e30f, -kInfinity};
  for (int whole = -126; whole <= 127; ++whole) x.push_back(static_cast<float>(whole));
  for (uint64_t i = 0; i < 200000; ++i) x.push_back(static_cast<float>(-126 + 253 * unit(philox64(3, i))));
  std::vector<float> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = softmax_exp2(x[i]);
  CHECK((y[0] == 1 && y[1] == 1 && std::isnan(y[2]) && std::isnan(y[3])));
  for (size_t i = 4; i < 10; ++i) CHECK(y[i] == 0);
  double worst = 0;
  for (size_t i = 10; i < x.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) / std::exp2(static_cast<double>(x[i])) - 1));
  CHECK(worst < 2e-7);
}

TEST_CASE("rounding to bf16 in vectors is the scalar rounding for every upper half and the ties around it") {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
  std::vector<Bf16> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = to<Bf16>(x[i]);
  int64_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) wrong += y[i].bits != Bf16(x[i]).bits;
  CHECK(wrong == 0);
}

TEST_CASE("blocks and columns cover everything once, whatever the number of threads") {
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    for (const int64_t n : {0, 1, 63, 64, 65, 257, 40001}) {
      std::vector<int> touched(static_cast<size_t>(n));
      const auto touch = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
      };
      for_blocks(n, 100, touch);
      for_columns(1000, n, touch);
      CHECK(touched == std::vector<int>(static_cast<size_t>(n), 2));
    }
  }
}

TEST_CASE("a kernel of integers is refused") {
  CHECK_THROWS_AS(with_dtype(Dtype::i32, [](auto) {}), Error);
}

TEST_CASE("fast normal numbers are those of the C library's functions, also at the ends of their range") {
  for (const uint32_t high : {0u, 1u, 0x3fffffffu, 0x40000000u, 0x7fffffffu, 0x80000000u, 0xc0000000u, 0xffffffffu})
    for (const uint32_t low : {0u, 0x7ffu, 0x800u, 0x12345678u, 0xffffffffu}) {
      CAPTURE(high, low);
      const double u = unit(static_cast<uint64_t>(high) << 32 | low);
      CHECK(unit_of_words(high, low) == u);
      CHECK(log_of_unit(u) == Approx(std::log(u)).epsilon(1e-15).margin(0));
      CHECK(cos_of_turn(u) == Approx(std::cos(2 * 3.14159265358979323846 * u)).epsilon(1e-15).margin(1e-15));
    }
  uint64_t index[kNormals];
  double y[kNormals];
  double worst = 0;
  for (uint64_t key = 0; key < 1000; ++key) {
    for (uint64_t i = 0; i < kNormals; ++i) index[i] = philox64(key, i);
    fast_normals(key, index, y);
    for (size_t i = 0; i < kNormals; ++i) worst = std::max(worst, std::abs(y[i] - normal(key, index[i])));
  }
  CHECK(worst < 1e-14);
}
