// The cores of a program whose OpenMP threads are bound.
#include <cstdlib>

#include "base/json.h"
#include "test/catch.h"
#include "test/train/process.h"

namespace trireme {
namespace {

// Cores that the program finds while the variable is set.
int64_t cores_with(const char* name, const char* value) {
  setenv(name, value, 1);
  const Ended ended = run_trireme_line("doctor --json -");
  unsetenv(name);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  return Json::parse(ended.out).at("cores").get<int64_t>();
}

}  // namespace

TEST_CASE("a program whose OpenMP threads are bound finds all of their cores") {
  const int64_t all = cores_with("OMP_PROC_BIND", "false");
  CHECK(cores_with("OMP_PROC_BIND", "true") == all);
  CHECK(cores_with("OMP_PROC_BIND", "spread") == all);
  CHECK(cores_with("OMP_PLACES", "cores") == all);
}

}  // namespace trireme
