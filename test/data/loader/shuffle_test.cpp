#include "data/loader/shuffle.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "test/catch.h"

using namespace trireme;

namespace {

std::vector<int64_t> whole_order(uint64_t seed, int64_t epoch, int64_t count) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(permuted(seed, epoch, i, count));
  return order;
}

}  // namespace

TEST_CASE("an order holds every sample once") {
  std::vector<int64_t> counts(70);
  std::iota(counts.begin(), counts.end(), 1);
  for (const int64_t power : {128, 256, 1024, 4096})
    for (const int64_t off : {-1, 0, 1}) counts.push_back(power + off);
  for (const int64_t count : counts) {
    for (const uint64_t seed : {0ull, 1ull, 0xffffffffffffffffull}) {
      auto order = whole_order(seed, 3, count);
      std::sort(order.begin(), order.end());
      std::vector<int64_t> expected(static_cast<size_t>(count));
      std::iota(expected.begin(), expected.end(), 0);
      REQUIRE(order == expected);
    }
  }
}

TEST_CASE("large orders stay in range and do not collide") {
  for (const int64_t count : {int64_t{1000000000}, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 20000; ++i) {
      const int64_t sample = permuted(7, 0, i * (count / 20000), count);
      REQUIRE((0 <= sample && sample < count));
      seen.insert(sample);
    }
    CHECK(seen.size() == 20000);
  }
}

TEST_CASE("orders differ between epochs and between seeds, and are far from sorted") {
  const auto order = whole_order(1, 0, 1000);
  CHECK(order != whole_order(1, 1, 1000));
  CHECK(order != whole_order(2, 0, 1000));
  CHECK(order == whole_order(1, 0, 1000));
  int64_t ascending = 0, fixed = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    ascending += order[i] < order[i + 1] ? 1 : 0;
    fixed += order[i] == static_cast<int64_t>(i) ? 1 : 0;
  }
  CHECK(std::abs(ascending - 500) < 60);
  CHECK(fixed < 10);
}

TEST_CASE("each sample comes first about equally often over the seeds") {
  std::vector<int> first(10, 0);
  for (uint64_t seed = 0; seed < 5000; ++seed) ++first[static_cast<size_t>(permuted(seed, 0, 0, 10))];
  for (const int times : first) CHECK(std::abs(times - 500) < 120);
}

TEST_CASE("a sample outside of the epoch is refused") {
  CHECK_THROWS_AS(permuted(1, 0, 5, 5), Error);
  CHECK_THROWS_AS(permuted(1, 0, 0, 0), Error);
  CHECK_THROWS_AS(permuted(1, 0, -1, 5), Error);
}
