#include "train/telemetry/run_history.h"

#include <cmath>

#include "base/json.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/followed_file.h"
#include "train/telemetry/json_members.h"

using namespace trireme;

namespace {

std::vector<std::string> lines_read(FollowedFile& file, int& anew) {
  std::vector<std::string> lines;
  file.read(
      std::chrono::seconds(60), [&] { ++anew; }, [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

std::string members_of(std::string_view object) {
  std::string all;
  JsonMembers members(object);
  while (members.next()) all += std::string(members.name()) + "=" + std::string(members.value()) + ";";
  return all + (members.whole() ? "whole" : "torn");
}

}  // namespace

TEST_CASE("members of an object are found as they are written, and a torn object is not whole") {
  CHECK(members_of(R"({"a": 1, "b":[1, {"]": "}"}] , "c" : "x\"}y", "d":null})") ==
        R"(a=1;b=[1, {"]": "}"}];c="x\"}y";d=null;whole)");
  CHECK(members_of("{}") == "whole");
  CHECK(members_of(" { } ") == "whole");
  const std::string line = R"({"step": 12, "parts_ms": {"a": 1.5}, "word": "w"})";
  CHECK(members_of(line).ends_with("whole"));
  for (size_t length = 0; length < line.size(); ++length) {
    INFO(line.substr(0, length));
    CHECK(members_of(line.substr(0, length)).ends_with("torn"));
  }
  for (const char* flaw : {"", "[]", "{1: 2}", "{\"a\" 1}", "{\"a\": 1 \"b\": 2}", "{\"a\": 1}}", "{\"a\":}", "{,}", "null"})
    CHECK(members_of(flaw).ends_with("torn"));
}

TEST_CASE("only whole numbers of JSON count as numbers") {
  CHECK(number_of("-1.5e3") == -1500);
  for (const char* other : {"", "null", "\"1\"", "1x", "[1]", "true"}) CHECK(std::isnan(number_of(other)));
}

TEST_CASE("a followed file hands over whole lines once, and begins anew when it is replaced or cut") {
  const Scratch scratch;
  const std::string path = scratch / "lines";
  FollowedFile file(path);
  int anew = 0;
  using Lines = std::vector<std::string>;
  CHECK(lines_read(file, anew).empty());  // absent
  write_text(path, "one\ntwo\nthr");
  CHECK(lines_read(file, anew) == Lines{"one", "two"});
  CHECK(lines_read(file, anew).empty());
  std::ofstream(path, std::ios::app) << "ee\n";
  CHECK(lines_read(file, anew) == Lines{"three"});
  CHECK(file.offset() == 14);
  CHECK(anew == 0);
  write_text(path, "cut\n");
  CHECK(lines_read(file, anew) == Lines{"cut"});
  CHECK(anew == 1);
  write_text(path + ".tmp", "other\nlines\n");
  std::filesystem::rename(path + ".tmp", path);
  CHECK(lines_read(file, anew) == Lines{"other", "lines"});
  CHECK(anew == 2);
  write_text(path, std::string(3 << 20, 'x') + "\nlast\n");  // longer than a block
  const Lines large = lines_read(file, anew);
  REQUIRE(large.size() >= 2);
  CHECK(large.back() == "last");
}

TEST_CASE("a time that is up leaves the rest of a long file for the next call") {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "a line of twenty bytes\n";
  write_text(scratch / "lines", text);
  FollowedFile file(scratch / "lines");
  int64_t lines = 0;
  int calls = 0;
  do {
    file.read(
        std::chrono::nanoseconds(calls == 0 ? 0 : 1), [] {}, [&](std::string_view) { ++lines; });
    if (calls == 0) CHECK(lines == 0);
    if (!file.more()) break;
  } while (++calls < 3);
  CHECK(calls > 0);
  file.read(
      std::chrono::seconds(60), [] {}, [&](std::string_view) { ++lines; });
  CHECK(lines == 300000);
  CHECK_FALSE(file.more());
}

TEST_CASE("a history takes the records it knows and leaves all other lines alone") {
  RunHistory history({.steps = 100});
  for (const char* line :
       {"", "{", "null", R"({"step": "x", "loss": 1})", R"({"loss": 1})", R"({"step": -1, "loss": 1})",
        R"({"step": 3, "novel": [1]})", R"({"step": 1, "loss": 2.5, "grad_norm": 1)", R"({"step": 1e300, "loss": 1})"})
    history.add(std::string_view(line));
  CHECK(history.last.step == 0);
  CHECK(history.curves.empty());
  CHECK(history.events.empty());

  history.add(std::string_view(
      R"({"step": 1, "loss": 2.5, "grad_norm": null, "lr": 0.1, "tokens": 64, "step_ms": 10, "tokens_per_second": 6400.0,)"
      R"( "mfu": 0.25, "parts_ms": {"forward": 4, "wait_dp": 6}})"));
  history.add(std::string_view(R"({"step": 1, "val_loss": 2.25, "bits_per_byte": null, "val_tokens": 10, "seconds": 0.5})"));
  history.add(std::string_view(R"({"step": 1, "saved_bytes": 1024, "saved_seconds": 2, "save_stall_ms": 5, "tier": "disk"})"));
  history.add(std::string_view(R"({"step": 2, "event": "spike", "since": 2})"));
  history.add(std::string_view(R"({"step": 2, "event": "straggler", "since": 1, "rank": 3, "host": "n7", "text": "is slow"})"));
  history.add(std::string_view(R"({"step": 2, "slowest_rank": 1, "slowest_ratio": 1.25, "busy_ms": [1.5, 2.5, null]})"));
  history.add(std::string_view(R"({"step": 2, "kwh": 1.5, "cost": 2, "currency": "EUR", "power_w": 300})"));
  CHECK(history.last.loss == 2.5);
  CHECK(std::isnan(history.last.grad_norm));
  CHECK(history.curve("loss").last() == 2.5);
  CHECK(history.curve("part/wait_dp").last() == 6);
  CHECK(history.curve("grad_norm").gaps() == 1);
  CHECK(history.curve("bits_per_byte").bins().empty());
  REQUIRE(history.parts.size() == 2);
  CHECK(history.parts[1].name == "wait_dp");
  CHECK(history.best.step == 1);
  CHECK(history.step_seconds == Approx(0.01));
  REQUIRE(history.events.size() == 3);
  CHECK(history.events[0].words == "saved 1 KiB in 2.0s, steps waited 5ms");
  CHECK(history.events[2].words == "rank 3 (n7): is slow");
  CHECK(history.count("spike") == 1);
  CHECK(history.busy.last() == std::vector<double>{1.5, 2.5, 0});
  CHECK(history.slowest.rank == 1);
  CHECK(history.slowest.ratio == 1.25);
  CHECK(history.machine.cost == 2);
  CHECK(history.machine.currency == "EUR");
  CHECK(std::isnan(history.machine.projected_cost));
  CHECK(history.left.after(1) > 0.9);  // 99 steps of 10 ms
  history.add(std::string_view(R"({"step": 3, "slowest_rank": 9000, "slowest_ratio": 1.5})"));  // of many ranks
  CHECK(history.slowest.step == 3);
  CHECK(history.slowest.rank == 9000);
  CHECK(history.busy.last().size() == 3);
}

TEST_CASE("a history of many steps and events stays small") {
  RunHistory history;
  for (int64_t step = 1; step <= 20000; ++step) {
    history.add(std::string_view(Json{{"step", step}, {"loss", 1.0}, {"parts_ms", {{"forward", 1}}}}.dump()));
    history.add(RunEvent{.step = step, .kind = "save", .words = ""});
  }
  CHECK(history.curve("loss").bins().size() <= static_cast<size_t>(RunHistory::kFineBins));
  CHECK(history.events.size() == RunHistory::kMostEvents);
  CHECK(history.first_event() == 18000);
  CHECK(history.count("save") == 20000);
  for (int i = 0; i < 100; ++i)
    history.add(std::string_view(Json{{"step", 20001}, {"loss", 1.0}, {"parts_ms", {{"part" + std::to_string(i), 1}}}}.dump()));
  CHECK(history.parts.size() == 32);
}

TEST_CASE("a map of busy ranks is bounded in columns and rows, and keeps the mean of each") {
  BusyMap map;
  for (int64_t step = 32; step <= 32 * 1000; step += 32) {
    std::vector<double> ms(300, 10);
    ms[299] = 40;
    map.add(step, ms);
  }
  CHECK(map.columns().size() <= static_cast<size_t>(BusyMap::kMostColumns));
  CHECK(map.ranks_per_row() == 3);
  int64_t count = 0;
  for (const BusyMap::Column& column : map.columns()) {
    REQUIRE(column.sums.size() == 100);
    count += column.count;
    CHECK(column.sums.front() == 10.0 * static_cast<double>(column.count));
    CHECK(column.sums.back() == 40.0 * static_cast<double>(column.count));
  }
  CHECK(count == 1000);
  map.add(40000, {1, 2});  // another mesh
  CHECK(map.columns().size() == 1);
  CHECK(map.ranks() == 2);
  map.add(5, {1, 2});  // earlier than the last
  map.add(40001, {});
  CHECK(map.columns().size() == 1);
}
