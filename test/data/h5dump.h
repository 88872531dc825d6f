// Tests that dump shards by HDF5's own tool.
#pragma once

#include <cstdlib>

#include "test/catch.h"

// Says so where there is none: the rest of the test is to be skipped then.
inline bool has_h5dump() {
  if (std::system("command -v h5dump > /dev/null") == 0) return true;
  WARN("skipped: no h5dump, of the package hdf5-tools");
  return false;
}
