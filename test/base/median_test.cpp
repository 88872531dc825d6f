#include "base/median.h"

#include "test/catch.h"

namespace trireme {

TEST_CASE("a median is the middle of the values, or of the two in the middle") {
  CHECK(median({}) == 0);
  CHECK(median({7}) == 7);
  CHECK(median({9, 1, 4}) == 4);
  CHECK(median({8, 1, 2, 4}) == 3);
  CHECK(upper_median({}) == 0);
  CHECK(upper_median({9, 1, 4}) == 4);
  CHECK(upper_median({8, 1, 2, 4}) == 4);
}

}  // namespace trireme
