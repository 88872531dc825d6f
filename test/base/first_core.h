// A core that the calling thread may use, to bind a test's thread to.
#pragma once

#include "base/core_set.h"
#include "test/catch.h"

namespace trireme {

inline int first_core() {
  const CoreSet mine = CoreSet::of_this_thread();
  REQUIRE(mine.count() > 0);
  int core = 0;
  while (!mine.has(core)) ++core;
  return core;
}

}  // namespace trireme
