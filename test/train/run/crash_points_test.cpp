// Four ranks, one of which has one disk call fail during saves and deletions: the newest committed
// checkpoint is found, and the run continues to the bits of an undisturbed one.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

constexpr int kRanks = 4;
constexpr std::array kKinds{"before", "after", "lose", "short", "eio", "enospc", "eintr"};

// Settings of a run of so many steps that saves each and keeps two.
std::vector<std::string> settings(const std::string& name, int64_t steps) {
  return {"train.name=" + name, "train.steps=" + std::to_string(steps),
          "checkpoint.every=1", "checkpoint.keep=2",
          "train.eval_every=0", "train.schedule=constant",
          "train.warmup=1",     "train.microbatch=1",
          "parallel.zero=1",    "parallel.tp=2",
          "data.validation=[]"};
}

// A failing call of one rank, for the lifetime of the object.
class Fault {
 public:
  Fault(int rank, int64_t at, const std::string& kind, const std::string& count = "") {
    set("LD_PRELOAD", TRIREME_BUILD "/test/libfaulty_disk.so");
    set("FAULTY_RANK", std::to_string(rank));
    set("FAULTY_AT", std::to_string(at));
    set("FAULTY_KIND", kind);
    set("FAULTY_COUNT", count);
  }
  ~Fault() {
    for (const char* name : {"LD_PRELOAD", "FAULTY_RANK", "FAULTY_AT", "FAULTY_KIND", "FAULTY_COUNT"}) unsetenv(name);
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

 private:
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
};

struct Point {
  int rank;
  int64_t at;
  std::string kind;
};

class CrashPoints {
 public:
  CrashPoints() {
    succeed(place_.train(settings("whole", 4), kRanks));
    succeed(place_.train(settings("origin", 2), kRanks));
    for (int rank = 0; rank < kRanks; ++rank) {
      copy_origin("counted");
      const Fault fault(rank, 0, "count", place_.scratch / "count");
      succeed(place_.train(settings("counted", 4), kRanks));
      calls_[rank] = std::stoll(read_text(place_.scratch / "count"));
    }
  }

  std::vector<Point> all() const {
    std::vector<Point> points;
    for (const auto& [rank, calls] : calls_)
      for (int64_t at = 1; at <= calls; ++at)
        for (const char* kind : kKinds) points.push_back({rank, at, kind});
    return points;
  }

  void check(const Point& point) {
    INFO("rank " << point.rank << ", call " << point.at << " of " << calls_[point.rank] << ", " << point.kind);
    copy_origin("run");
    Ended ended;
    {
      const Fault fault(point.rank, point.at, point.kind);
      ended = place_.train(settings("run", 4), kRanks);
    }
    INFO(ended.err);
    const bool dies = point.kind == "before" || point.kind == "after" || point.kind == "lose";
    if (!dies) REQUIRE((ended.code == 0 || ended.code == 4));  // 4: the last save, which must succeed
    if (point.kind == "short" || point.kind == "eintr") REQUIRE(ended.code == 0);
    const Ended resumed = place_.train(settings("run", 4), kRanks);
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    REQUIRE_THAT(resumed.err, !ContainsSubstring("damaged"));
    REQUIRE(place_.metrics("run") == place_.metrics("whole"));
    REQUIRE(place_.differ("run", "whole") == 0);
    REQUIRE(run_trireme(place_.scratch.path(), {"checkpoint", "verify", "runs/run"}).code == 0);
  }

 private:
  void copy_origin(const std::string& name) {
    std::filesystem::remove_all(place_.scratch / ("runs/" + name));
    std::filesystem::copy(place_.scratch / "runs/origin", place_.scratch / ("runs/" + name),
                          std::filesystem::copy_options::recursive);
  }

  Workplace place_;
  std::map<int, int64_t> calls_;  // of each rank, in a run of two saves
};

}  // namespace

TEST_CASE("one call to the disk goes wrong on one of four ranks: some of the places", "[unsanitized]") {
  CrashPoints points;
  const std::vector<Point> all = points.all();
  REQUIRE(all.size() > 400);
  for (uint64_t i = 0; i < 8; ++i) points.check(all[philox64(11, i) % all.size()]);
}

namespace {

// One test for each rank, with a section for each kind: they may run beside each other.
void check_every_place_of(int rank) {
  for (const char* kind : kKinds) DYNAMIC_SECTION(kind) {
      CrashPoints points;
      int64_t checked = 0;
      for (const Point& point : points.all())
        if (point.rank == rank && point.kind == kind) points.check(point), ++checked;
      WARN(checked << " states of rank " << rank << ": " << kind);
    }
}

}  // namespace

TEST_CASE("one call to the disk goes wrong on rank 0 of four: every place", "[.][soak]") { check_every_place_of(0); }
TEST_CASE("one call to the disk goes wrong on rank 1 of four: every place", "[.][soak]") { check_every_place_of(1); }
TEST_CASE("one call to the disk goes wrong on rank 2 of four: every place", "[.][soak]") { check_every_place_of(2); }
TEST_CASE("one call to the disk goes wrong on rank 3 of four: every place", "[.][soak]") { check_every_place_of(3); }

}  // namespace trireme
