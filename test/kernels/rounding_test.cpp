#include "kernels/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "test/catch.h"

using namespace trireme;

TEST_CASE("a value is rounded stochastically to its neighbours in bf16, on average to itself") {
  for (const float x : {1.0f + 0x1p-9f, -3.14159265f, 1e-40f, 0x1.fffffep9f, -0x1.00fffep-126f}) {
    const double below = static_cast<float>(rounded_stochastically(x, 0)),
                 above = static_cast<float>(rounded_stochastically(x, 0xffff));
    CHECK(std::abs(below) <= std::abs(x));
    CHECK(std::abs(x) < std::abs(above));
    // Averages over each of the 16 random bits once: exact to the last bit.
    double sum = 0;
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const double rounded = static_cast<float>(rounded_stochastically(x, random));
      REQUIRE((rounded == below || rounded == above));
      sum += rounded;
    }
    CHECK(sum / 0x10000 == Approx(x).epsilon(1e-15));
    // Averages over many steps of one element: within five standard deviations, of which one is at
    // most half the distance / sqrt(steps).
    constexpr int64_t kSteps = 40000;
    double drawn = 0;
    for (int64_t step = 1; step <= kSteps; ++step)
      drawn += static_cast<float>(rounded_stochastically(x, RandomBits({.key = 7}, 11, step).next()));
    CHECK(std::abs(drawn / kSteps - static_cast<double>(x)) <= 5 * 0.5 * std::abs(above - below) / std::sqrt(kSteps));
  }
}

TEST_CASE("what bf16 holds is rounded to itself, infinity and NaN stay, and what is finite stays finite") {
  const float inf = std::numeric_limits<float>::infinity(), largest = 0x1.fep127f;
  for (const uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
    for (const float x : {0.0f, -0.0f, 1.5f, -0x1p-133f, largest, inf, -inf})
      CHECK(rounded_stochastically(x, random).bits == Bf16(x).bits);
    CHECK(static_cast<float>(rounded_stochastically(std::numeric_limits<float>::max(), random)) == largest);
    for (const uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xffffffffu})
      CHECK(std::isnan(static_cast<float>(rounded_stochastically(std::bit_cast<float>(nan), random))));
  }
}

TEST_CASE("random bits of an element do not depend on where its tensor is cut") {
  constexpr int64_t kRows = 7, kCols = 13;
  std::vector<uint32_t> all;
  RandomBits whole({.key = 3, .cols = kCols, .stride = kCols}, 0, 5);
  for (int64_t i = 0; i < kRows * kCols; ++i) all.push_back(whole.next());
  for (const int64_t first_col : {0, 4, 9})
    for (int64_t first = 0; first < kRows * 4; ++first) {
      RandomBits part({.key = 3, .first = first - first % 3, .origin = first_col, .cols = 4, .stride = kCols}, first % 3, 5);
      for (int64_t i = first; i < kRows * 4; ++i)
        REQUIRE(part.next() == all[static_cast<size_t>(i / 4 * kCols + first_col + i % 4)]);
    }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());  // no two of these 91 are equal by chance
}
