// How the program settles OpenMP: its bound on waits, as libgomp shows it, and its cores.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/json.h"
#include "test/base/first_core.h"
#include "test/catch.h"
#include "test/train/process.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

// WaitVariables of the children of this process, until the end of the object.
class WaitVariables {
 public:
  explicit WaitVariables(const std::string& policy, const std::string& spins) {
    setenv("OMP_DISPLAY_ENV", "VERBOSE", 1);
    set("OMP_WAIT_POLICY", policy), set("GOMP_SPINCOUNT", spins);
  }
  ~WaitVariables() {
    for (const char* name : {"OMP_DISPLAY_ENV", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) unsetenv(name);
  }
  WaitVariables(const WaitVariables&) = delete;
  WaitVariables& operator=(const WaitVariables&) = delete;

 private:
  static void set(const char* name, const std::string& value) { value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1); }
};

// Settings of libgomp in the program that runs in the end.
std::string settings(const std::string& policy, const std::string& spins) {
  const WaitVariables variables(policy, spins);
  const Ended ended = run_trireme_line("version");
  CHECK(ended.code == 0);
  const size_t last = ended.err.rfind("OPENMP DISPLAY ENVIRONMENT BEGIN");
  REQUIRE(last != std::string::npos);
  return ended.err.substr(last);
}

// Cores that the program finds, and whether libgomp binds its threads in the end, while a variable is set.
struct FoundCores {
  int64_t cores;
  bool bound;
  auto operator<=>(const FoundCores&) const = default;
};
FoundCores cores_with(const char* name, const char* value) {
  setenv("OMP_DISPLAY_ENV", "VERBOSE", 1), setenv(name, value, 1);
  const Ended ended = run_trireme_line("doctor --json -");
  unsetenv("OMP_DISPLAY_ENV"), unsetenv(name);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const size_t last = ended.err.rfind("OMP_PROC_BIND = ");
  REQUIRE(last != std::string::npos);
  return {.cores = Json::parse(ended.out).at("cores").get<int64_t>(),
          .bound = !ended.err.substr(last).starts_with("OMP_PROC_BIND = 'FALSE'")};
}

}  // namespace

TEST_CASE("the program binds none of OpenMP's threads, and finds the cores of all of them", "[unsanitized]") {
  const FoundCores all = cores_with("OMP_PROC_BIND", "false");
  CHECK_FALSE(all.bound);
  for (const char* kind : {"true", "master", "spread"}) CHECK(cores_with("OMP_PROC_BIND", kind) == all);
  CHECK(cores_with("OMP_PLACES", "cores") == all);
  CHECK(cores_with("OMP_PLACES", ("{" + std::to_string(first_core()) + "}").c_str()) == FoundCores{1, false});
}

TEST_CASE("the program bounds OpenMP's waits, unless the user has said how to wait", "[unsanitized]") {
  CHECK_THAT(settings("", ""), ContainsSubstring("GOMP_SPINCOUNT = '10000'"));
  CHECK_THAT(settings("", "77"), ContainsSubstring("GOMP_SPINCOUNT = '77'"));
  CHECK_THAT(settings("passive", ""), ContainsSubstring("GOMP_SPINCOUNT = '0'"));
  CHECK_THAT(settings("active", ""), ContainsSubstring("OMP_WAIT_POLICY = 'ACTIVE'"));
}

TEST_CASE("the program that bounds its waits keeps its name, and its children have the user's environment", "[unsanitized]") {
  const Workplace place;
  setenv("OMP_PROC_BIND", "close", 1);
  const Ended ended = place.train({"checkpoint.command=env > environment; cat /proc/$PPID/comm > name"});
  unsetenv("OMP_PROC_BIND");
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(read_text(place.scratch / "name") == "trireme\n");
  CHECK_THAT(read_text(place.scratch / "environment"),
             ContainsSubstring("PATH=") && ContainsSubstring("\nOMP_PROC_BIND=close\n") && !ContainsSubstring("GOMP_SPINCOUNT") &&
                 !ContainsSubstring("TRIREME_RESTARTED") && !ContainsSubstring("TRIREME_OMP"));
}

TEST_CASE("the tests wait as the program does") {
  const std::string environment = read_text("/proc/self/environ");
  const auto has = [&](const char* name) { return environment.find(name) != std::string::npos; };
  CHECK((has("TRIREME_RESTARTED=") || has("OMP_WAIT_POLICY=") || has("GOMP_SPINCOUNT=")));
}

}  // namespace trireme
