#include "base/core_set.h"

#include <thread>

#include "test/base/first_core.h"
#include "test/catch.h"

namespace trireme {

TEST_CASE("a set of cores has those of large machines, and no others") {
  const CoreSet cores({0, 63, 64, 1023, 1024, CoreSet::kMost - 1, CoreSet::kMost, -1, 64});
  CHECK(cores.count() == 6);
  for (const int core : {0, 63, 64, 1023, 1024, CoreSet::kMost - 1}) CHECK(cores.has(core));
  for (const int core : {-1, 1, 62, 65, 1025, CoreSet::kMost}) CHECK_FALSE(cores.has(core));
  const CoreSet common = cores.common(CoreSet({1, 64, 1024}));
  CHECK(common.count() == 2);
  CHECK((common.has(64) && common.has(1024)));
  CHECK(CoreSet().count() == 0);
}

TEST_CASE("a thread keeps to its cores, and not to those that the machine has not") {
  std::thread([] {  // whose cores are its own
    const int all = CoreSet::of_this_thread().count(), first = first_core();
    CHECK_FALSE(CoreSet({CoreSet::kMost - 1}).keep_this_thread());
    CHECK(CoreSet::of_this_thread().count() == all);
    CHECK(CoreSet({first, CoreSet::kMost - 1}).keep_this_thread());
    CHECK(CoreSet::of_this_thread().count() == 1);
    CHECK(CoreSet::of_this_thread().has(first));
  })
      .join();
}

}  // namespace trireme
