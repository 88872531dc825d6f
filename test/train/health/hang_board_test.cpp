// The board on which nodes report their ranks: what is read from it, who leads, and when a report counts as old.
#include "train/health/hang_board.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/health/node_reports.h"

namespace trireme {

TEST_CASE("a ruling on the board is read as it was written, and a damaged one is none") {
  const Scratch scratch;
  const HangBoard first(scratch / "hang-1", 0, 3), third(scratch / "hang-1", 2, 3);
  CHECK(third.first_report(0).node == -1);
  CHECK_FALSE(third.ruling());
  third.report({RankReport{.rank = 5, .host = "n", .doing = "training", .entries = {}, .entered = {}}});
  CHECK(first.first_report(0).node == 2);
  first.report({RankReport{.rank = 1, .host = "n", .doing = "training", .entries = {}, .entered = {}}});
  CHECK(third.first_report(0).node == 0);
  CHECK(third.first_report(1).node == 2);
  CHECK(third.first_report(0) == third.first_report(0));
  first.rule({.verdict = {.rank = 5, .host = "n", .thread = 77, .line = "rank 5 is at fault; node 1 has reported nothing", .awaited = true},
              .speaker = 2});
  const std::optional<BoardRuling> read = third.ruling();
  REQUIRE(read);
  CHECK(read->speaker == 2);
  CHECK(read->verdict.rank == 5);
  CHECK(read->verdict.host == "n");
  CHECK(read->verdict.thread == 77);
  CHECK(read->verdict.awaited);
  CHECK_FALSE(read->verdict.shared);
  CHECK(read->verdict.line == "rank 5 is at fault; node 1 has reported nothing");
  write_text(scratch / "hang-1/ruling", "trireme ruling 2 2 5 77");
  CHECK_FALSE(third.ruling());
}

TEST_CASE("the first node that reports leads, until its report stays the same for too long") {
  const Scratch scratch;
  const HangBoard boards[] = {{scratch / "hang-1", 0, 3}, {scratch / "hang-1", 1, 3}, {scratch / "hang-1", 2, 3}};
  NodeReports first(&boards[0], 0.3), second(&boards[1], 0.3), third(&boards[2], 0.3);
  const std::vector<RankReport> own{RankReport{.rank = 1, .host = "n", .doing = "training", .entries = {}, .entered = {}}};
  second.exchange(own, 0.01);
  CHECK(second.leads());
  CHECK_FALSE(second.complete());
  third.exchange(own, 0.01);
  CHECK_FALSE(third.leads());
  CHECK(third.all().empty());
  first.exchange(own, 0.01), second.exchange(own, 0.01);
  CHECK(first.leads());
  CHECK(first.complete());
  CHECK_FALSE(second.leads());
  Verdict verdict{.rank = 1, .line = "it"};
  first.rule(verdict);
  third.exchange(own, 0.01);
  REQUIRE(third.ruled());
  CHECK(third.ruled()->line == "it");
  CHECK(first.reports());  // the first that has the culprit among its ranks
  CHECK_FALSE(third.reports());
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  second.exchange(own, 0.01);
  CHECK(second.leads());
  first.take_back();
  boards[1].report(own);
  third.exchange(own, 0.01);
  CHECK_FALSE(third.leads());  // the second has reported since
}

TEST_CASE("two nodes whose reports stay the same do not keep a third from leading") {
  const Scratch scratch;
  const HangBoard boards[] = {{scratch / "hang-1", 0, 3}, {scratch / "hang-1", 1, 3}, {scratch / "hang-1", 2, 3}};
  const std::vector<RankReport> own{RankReport{.rank = 1, .host = "n", .doing = "training", .entries = {}, .entered = {}}};
  boards[0].report(own), boards[1].report(own);
  NodeReports third(&boards[2], 0.2);
  third.exchange(own, 0.01);
  CHECK_FALSE(third.leads());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  third.exchange(own, 0.01);  // the first is passed over, and the second is seen
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  third.exchange(own, 0.01);
  CHECK(third.leads());
}

TEST_CASE("a report on ranks becomes text from which it is read again") {
  RankReport one{.rank = 3,
                 .process = 77,
                 .host = "node-a",
                 .state = 'T',
                 .step = 12,
                 .part = 4,
                 .doing = "reading a checkpoint",
                 .silent = 5.25,
                 .entries = {},
                 .entered = {{18446744073709551615u, 4}, {7, 2}}};
  JournalEntry entry{.group = {.first = 1, .stride = 2, .count = 3},
                     .peer = -1,
                     .number = 9,
                     .bytes = 1 << 20,
                     .since = 5,
                     .thread = 88,
                     .inside = 1,
                     .hosts = 1};
  std::copy_n("all_reduce", 10, entry.what.data()), std::copy_n("tp part", 7, entry.along.data());
  one.entries = {entry, entry, JournalEntry{}};
  RankReport two = one;
  two.rank = 4, two.doing = "", two.entries.clear(), two.entered.clear();
  two.on_gpu = {{.group = {.first = 1, .stride = 2, .count = 4}, .entered = 77}};
  std::copy_n("tp part", 7, two.on_gpu[0].along.data());
  const std::string text = to_text({one, two});
  const std::vector<RankReport> back = reports_in(text);
  REQUIRE(back.size() == 2);
  CHECK(to_text(back) == text);
  CHECK(back[0].doing == one.doing);
  CHECK(back[0].entered == one.entered);
  CHECK(back[0].entries[1].group == entry.group);
  CHECK(back[0].entries[1].along == entry.along);
  CHECK(back[0].entries[1].hosts == 1);
  CHECK(back[1].state == 'T');
  for (size_t cut = 0; cut < text.size() - 1; ++cut) CHECK(reports_in(text.substr(0, cut)).empty());
  CHECK(reports_in("trireme hang 4 99999999999\n").empty());
}

}  // namespace trireme
