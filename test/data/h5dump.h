// Helper of tests that dump shards with HDF5's own tool.
#pragma once

#include <cstdlib>

#include "test/catch.h"

// Returns false, after a message, if there is no h5dump: skip the rest of the test then.
inline bool has_h5dump() {
  if (std::system("command -v h5dump > /dev/null") == 0) return true;
  WARN("skipped: no h5dump, of the package hdf5-tools");
  return false;
}
