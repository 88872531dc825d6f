// The promises of docs/reliability.md in simulated schedules, and the planted faults that these must find.
#include <algorithm>
#include <map>

#include "test/catch.h"
#include "test/sanitized.h"
#include "test/simulation/planted.h"
#include "test/simulation/schedule.h"

using namespace trireme::simulation;

namespace {

constexpr uint64_t kSeeds = trireme::kSanitized ? 200 : 2000;

// The first seed that fails, of those up to `most`; 0: none.
uint64_t first_failure(Planted planted, uint64_t most) {
  for (uint64_t seed = 1; seed <= most; ++seed)
    if (!run_schedule({.seed = seed, .planted = planted}).failure.empty()) return seed;
  return 0;
}

void require_promises(uint64_t from, uint64_t count) {
  int64_t commits = 0, restores = 0, faults = 0;
  for (uint64_t seed = from; seed < from + count; ++seed) {
    const Result result = run_schedule({.seed = seed});
    if (!result.failure.empty()) FAIL(explain({.seed = seed}));
    commits += result.commits, restores += result.restores, faults += result.faults;
  }
  WARN(count << " schedules: " << commits << " saves, " << restores << " restores, " << faults << " faults");
  CHECK(std::min({commits, restores, faults}) > static_cast<int64_t>(count) / 4);
}

}  // namespace

TEST_CASE("every promise holds in simulated schedules of kills, signals, losses of power and failing calls") {
  require_promises(1, kSeeds);
}

TEST_CASE("simulated schedules find each fault that is planted in the protocol") {
  const std::map<Planted, uint64_t> within{{Planted::directories_unsynced, 400},
                                           {Planted::files_unsynced, 400},
                                           {Planted::lock_unchecked, 400},
                                           {Planted::lock_shared, 400},
                                           {Planted::deletes_early, 100}};
  for (const Planted planted : kPlanted) {
    const uint64_t seed = first_failure(planted, within.at(planted));
    INFO(name_of(planted));
    CHECK(seed > 0);
    WARN(name_of(planted) << " is found by seed " << seed);
  }
}

TEST_CASE("every promise holds in schedules that once broke one") {
  for (const uint64_t seed : {1810, 22545, 29090, 38116, 45446, 49471, 83256, 96787, 104860, 127664, 161680, 1108775, 1120680,
                              1207290, 1359302, 1363194, 1374547})
    if (!run_schedule({.seed = seed}).failure.empty()) FAIL(explain({.seed = seed}));
}

TEST_CASE("a seed repeats its schedule call by call") {
  for (const uint64_t seed : {3, 11, 27}) {
    const Result first = run_schedule({.seed = seed, .traced = true}), again = run_schedule({.seed = seed, .traced = true});
    CHECK(first.calls == again.calls);
    CHECK(first.trace == again.trace);
  }
}

TEST_CASE("every promise holds in a night of simulated schedules", "[.][soak]") { require_promises(1'000'000, 500'000); }
