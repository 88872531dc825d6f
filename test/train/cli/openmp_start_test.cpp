// How the program settles OpenMP: its bound on waits, as libgomp shows it, and its cores.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "test/base/first_core.h"
#include "test/catch.h"
#include "test/data/scratch.h"
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

// Cores of each rank under mpirun with these options: by its binding, and those that the program takes.
struct RankCores {
  int64_t bound, taken;
};
std::vector<RankCores> cores_of_ranks(const std::string& options, const std::string& before = "") {
  const Scratch scratch;
  const std::string environment = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ";
  const std::string rank =
      "'unset OMP_NUM_THREADS; nproc > $OMPI_COMM_WORLD_RANK; " TRIREME_BUILD "/trireme doctor --json $OMPI_COMM_WORLD_RANK.json'";
  const std::string line = environment + before + " mpirun --oversubscribe " + options + " sh -c " + rank;
  const Ended ended = Process(scratch.path(), {"-c", line}, 1, "/bin/sh").wait();
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  std::vector<RankCores> ranks;
  for (std::string name = "0"; std::filesystem::exists(scratch / name); name = std::to_string(ranks.size()))
    ranks.push_back({.bound = std::stoll(read_text(scratch / name)),
                     .taken = Json::parse(read_text(scratch / (name + ".json"))).at("cores").get<int64_t>()});
  return ranks;
}

}  // namespace

TEST_CASE("of one or two ranks that mpirun has bound to a core unasked each has mpirun's cores", "[unsanitized]") {
  const int64_t all = CoreSet::of_this_thread().count();
  for (const char* unasked : {"-n 1", "-n 2", "-n 1 --map-by slot", "-n 1 --map-by ppr:1:node", "-n 1 -N 1"}) {
    CAPTURE(unasked);
    const std::vector<RankCores> ranks = cores_of_ranks(unasked);
    REQUIRE(ranks.size() == static_cast<size_t>(unasked[3] - '0'));
    for (const RankCores& rank : ranks) CHECK(rank.taken == all);
  }
  for (const char* asked : {"-n 1 --bind-to core", "-n 1 --map-by core", "-n 1 --map-by slot:PE=1", "-n 1 --cpus-per-proc 1"}) {
    CAPTURE(asked);
    const RankCores rank = cores_of_ranks(asked).at(0);
    CHECK(rank.taken == rank.bound);
  }
  CHECK(cores_of_ranks("-n 1", "taskset -c " + std::to_string(first_core())).at(0).taken == 1);
}

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
  const WaitVariables none("", "");
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
