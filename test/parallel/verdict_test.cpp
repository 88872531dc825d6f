// Verdicts on made-up journals, and a journal's own report.
#include "parallel/verdict.h"

#include <cstring>
#include <thread>

#include "test/catch.h"

namespace trireme {
namespace {

constexpr GroupRanks kAll{.first = 0, .stride = 1, .count = 4};

JournalEntry entry(const char* what, const char* along, const GroupRanks& group, int64_t number, bool inside, int64_t bytes = 64) {
  JournalEntry e{.group = group, .number = number, .bytes = bytes, .since = number + 1, .thread = 7, .inside = inside};
  std::strncpy(e.what.data(), what, e.what.size() - 1);
  std::strncpy(e.along.data(), along, e.along.size() - 1);
  return e;
}

JournalEntry message(const char* what, int64_t peer) {
  JournalEntry e = entry(what, "pp", {.first = 0, .stride = 1, .count = 4}, 0, true);
  e.peer = static_cast<int32_t>(peer);
  return e;
}

// Four ranks at step 9, each in wait #5 of all.
std::vector<RankReport> waiting() {
  std::vector<RankReport> ranks;
  for (int64_t r = 0; r < 4; ++r)
    ranks.push_back({.rank = r,
                     .process = static_cast<int32_t>(100 + r),
                     .host = "n1",
                     .step = 9,
                     .part = 2,
                     .doing = "training",
                     .silent = 6,
                     .entries = {entry("all_reduce", "dp", kAll, 5, true)},
                     .entered = {{group_key("dp", kAll), 5}}});
  return ranks;
}

void leaves(RankReport& rank, int64_t number) {
  rank.entries = {entry("all_reduce", "dp", kAll, number, false)};
  rank.entered[group_key("dp", kAll)] = number;
}

}  // namespace

TEST_CASE("a rank that has not entered what the others wait in is the culprit, with what it did last") {
  auto ranks = waiting();
  leaves(ranks[2], 4);
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == 2);
  CHECK(verdict.host == "n1");
  CHECK(verdict.thread == 0);
  CHECK(verdict.line ==
        "rank 2 on n1 (process 102) waits for no other rank, silent for 6.0 s, training, step 9 part 2, last in all_reduce dp #4 "
        "(64 bytes); ranks 0, 1, 3 wait for it in all_reduce dp #5 (64 bytes)");
}

TEST_CASE("a rank that is stopped or gone is the culprit, wherever it is") {
  for (const char state : {'T', 'Z', 'X'}) {
    auto ranks = waiting();
    leaves(ranks[2], 4);
    ranks[1].state = state;
    const Verdict verdict = judge(ranks);
    CHECK(verdict.rank == 1);
    CHECK_THAT(verdict.line, ContainsSubstring(state == 'T' ? "is stopped by a signal, in all_reduce dp #5" : "is gone"));
  }
}

TEST_CASE("a rank that does something else in the same place is the culprit: another collective, or of another size") {
  for (const bool size : {false, true}) {
    auto ranks = waiting();
    ranks[3].entries = {size ? entry("all_reduce", "dp", kAll, 5, true, 32) : entry("all_gather", "dp", kAll, 5, true)};
    const Verdict verdict = judge(ranks);
    CHECK(verdict.rank == 3);
    CHECK_THAT(verdict.line, ContainsSubstring(size ? "is in all_reduce dp #5 (32 bytes)" : "is in all_gather dp #5 (64 bytes)") &&
                                 ContainsSubstring("rank 0 and others in all_reduce dp #5 (64 bytes)"));
  }
}

TEST_CASE("a rank that left a collective out waits for the others elsewhere, and is the culprit") {
  auto ranks = waiting();
  leaves(ranks[1], 4);
  ranks[1].entries = {entry("agree", "all", kAll, 3, true)};
  ranks[1].entered[group_key("all", kAll)] = 3;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == 1);
  CHECK_THAT(verdict.line, ContainsSubstring("is in agree all #3") && ContainsSubstring("wait for it in all_reduce dp #5"));
}

TEST_CASE("a rank that reads data while the others wait between hosts is the culprit, whatever their lanes have entered") {
  auto ranks = waiting();
  for (RankReport& rank : ranks) {
    const bool reads = rank.rank == 2;
    const int64_t lanes = 5 + rank.rank % 2;
    rank.entries = {entry("all_gather", "dp", kAll, lanes, false)};
    rank.entered = {{group_key("dp", kAll), lanes}, {group_key("dp", kAll, true), reads ? 3 : 4}};
    if (reads) continue;
    JournalEntry adds = entry("add up", "dp", kAll, 4, true);
    adds.thread = 8, adds.hosts = 1;
    rank.entries.push_back(adds);
  }
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == 2);
  CHECK_THAT(verdict.line, ContainsSubstring("wait for it in add up dp #4"));
}

TEST_CASE("the chain of waits is followed to its end, through messages and groups") {
  auto ranks = waiting();
  const GroupRanks front{.first = 0, .stride = 1, .count = 2};
  for (RankReport& rank : ranks) rank.entries.clear(), rank.entered.clear();
  ranks[0].entries = {entry("all_gather", "tp", front, 8, true)};  // waits for 1
  ranks[0].entered[group_key("tp", front)] = 8;
  ranks[1].entered[group_key("tp", front)] = 7;
  ranks[1].entries = {message("receive", 2)};
  ranks[2].entries = {message("receive", 3)};
  ranks[3].entries = {};  // busy
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == 3);
  CHECK_THAT(verdict.line, ContainsSubstring("rank 2 waits for it in receive pp with rank 3"));
}

TEST_CASE("two ends that meet wait for nobody else, and two that only receive wait for each other") {
  auto ranks = waiting();
  for (RankReport& rank : ranks) rank.entries.clear();
  ranks[0].entries = {message("receive", 1)};
  ranks[1].entries = {message("receive", 0)};
  ranks[1].part = 3;  // it is ahead: it has skipped its send
  CHECK(judge(ranks).rank == 1);
  CHECK(judge(ranks).host.empty());
  CHECK(judge({}).rank == -1);
}

namespace {

// Four ranks, of which rank 2 has not entered what the others wait in, with this share of the processors.
std::vector<RankReport> waiting_for_two(const ProcessorShare& share) {
  auto ranks = waiting();
  for (RankReport& r : ranks) r.share.counted = 6;
  leaves(ranks[2], 4);
  ranks[2].share = share;
  return ranks;
}

Ruling ruling(const std::vector<RankReport>& ranks) { return rule(judge(ranks), ranks, 5); }

}  // namespace

TEST_CASE("a rank that others wait for is judged once it has had the time that a step may take") {
  CHECK(ruling(waiting_for_two({.counted = 5})) == Ruling::hang);
  CHECK(ruling(waiting_for_two({.counted = 4.9, .unserved = 60})) == Ruling::slow);
  CHECK(ruling(waiting_for_two({.counted = 60, .used = 4.9, .computes = true})) == Ruling::slow);
  CHECK(ruling(waiting_for_two({.counted = 60, .used = 5, .computes = true})) == Ruling::hang);
  auto stopped = waiting_for_two({});
  stopped[2].state = 'T';
  CHECK(ruling(stopped) == Ruling::hang);
}

TEST_CASE("a verdict shows what a rank has had of the processors") {
  const auto line = [](const ProcessorShare& share) { return judge(waiting_for_two(share)).line; };
  CHECK_THAT(line({.counted = 1, .unserved = 9, .used = 0.5}),
             ContainsSubstring("rank 2 on n1 (process 102) is ready to run but has no core, silent for 6.0 s") &&
                 ContainsSubstring(", with 0.5 s of processor time and 9.0 s ready to run without a core; ranks 0, 1, 3 wait"));
  CHECK_THAT(line({.counted = 9, .used = 9, .computes = true}), ContainsSubstring("(process 102) computes, silent"));
  CHECK_THAT(line({.counted = 9}), ContainsSubstring("(process 102) waits for no other rank, silent"));
}

TEST_CASE("a rank that no other rank waits for is not judged, unless a disk holds it") {
  const auto alone = [](const char* doing, const ProcessorShare& share) {
    std::vector<RankReport> ranks(1);
    ranks[0].doing = doing, ranks[0].share = share;
    return ruling(ranks);
  };
  CHECK(alone("training", {.counted = 1000, .used = 1000, .computes = true}) == Ruling::unawaited);
  CHECK(alone("training", {.counted = 1000}) == Ruling::unawaited);
  CHECK(alone("evaluating", {.counted = 1000}) == Ruling::unawaited);
  CHECK(alone("saving", {.counted = 1000, .used = 1000, .computes = true}) == Ruling::unawaited);
  CHECK(alone("saving", {.counted = 4}) == Ruling::unawaited);
  CHECK(alone("saving", {.counted = 6}) == Ruling::hang);
  auto ranks = waiting_for_two({.counted = 1000});
  for (RankReport& r : ranks) r.entries.clear();
  CHECK(ruling(ranks) == Ruling::unawaited);
  ranks[0].waits_for_gpu = true;  // for work that rank 2 may owe
  CHECK(judge(ranks).rank != 0);
  CHECK(ruling(ranks) == Ruling::hang);
}

namespace {

// Four ranks whose hosts wait for their GPUs, which have entered so many collectives along dp.
std::vector<RankReport> waiting_for_gpus(const std::vector<int64_t>& entered) {
  auto ranks = waiting();
  for (RankReport& r : ranks) {
    r.entries.clear(), r.waits_for_gpu = true, r.share.counted = 6;
    GpuWaits waits{.group = kAll, .entered = entered[static_cast<size_t>(r.rank)]};
    std::strncpy(waits.along.data(), "dp", waits.along.size() - 1);
    r.on_gpu = {waits};
  }
  return ranks;
}

}  // namespace

TEST_CASE("of ranks that wait for their GPUs, the one whose GPU has entered fewer collectives is the culprit") {
  for (const size_t late : {0, 3}) {
    std::vector<int64_t> entered(4, 12);
    entered[late] = 11;
    const auto ranks = waiting_for_gpus(entered);
    const Verdict verdict = judge(ranks);
    CHECK(verdict.rank == static_cast<int64_t>(late));
    CHECK_THAT(verdict.line, ContainsSubstring("waits for its GPU, silent") &&
                                 ContainsSubstring(late == 0 ? "; ranks 1, 2, 3 wait for it" : "; ranks 0, 1, 2 wait for it") &&
                                 ContainsSubstring("their GPUs are in collective #12 along dp, its GPU has entered 11"));
    CHECK(ruling(ranks) == Ruling::hang);
  }
}

TEST_CASE("a verdict names no rank if all wait for their GPUs, and none has entered fewer") {
  const auto ranks = waiting_for_gpus({12, 12, 12, 12});
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == -1);
  CHECK(verdict.host.empty());
  CHECK(verdict.thread == 0);
  CHECK_THAT(verdict.line, ContainsSubstring("no rank is known to be at fault") && ContainsSubstring("(12 along dp on rank 0)") &&
                               ContainsSubstring("nvidia-smi"));
  CHECK(ruling(ranks) == Ruling::hang);
}

TEST_CASE("a rank whose GPU counts nothing is not taken for one that has entered nothing") {
  auto ranks = waiting_for_gpus({12, 12, 12, 12});
  ranks[1].on_gpu.clear();  // the driver has refused it the journal
  CHECK(judge(ranks).rank == -1);
  ranks[2].on_gpu[0].entered = 11;
  const Verdict verdict = judge(ranks);
  CHECK(verdict.rank == 2);
  CHECK_THAT(verdict.line, ContainsSubstring("; ranks 0, 3 wait for it: their GPUs are in collective #12 along dp"));
}

TEST_CASE("of ranks that are all in one wait, the one without a core is named") {
  for (size_t starved = 0; starved < 4; ++starved) {
    auto ranks = waiting();
    for (RankReport& r : ranks) r.share = {.counted = 6};
    ranks[starved].share = {.counted = 1, .unserved = 5};
    CHECK(judge(ranks).rank == static_cast<int64_t>(starved));
    CHECK(ruling(ranks) == Ruling::slow);
  }
}

TEST_CASE("ranks that wait for one another are judged once all of them could look") {
  auto ranks = waiting();
  for (RankReport& r : ranks) r.share.counted = 6;
  CHECK(ruling(ranks) == Ruling::hang);
  ranks[3].share.counted = 1;
  CHECK(ruling(ranks) == Ruling::slow);
}

TEST_CASE("a journal shows what each thread has entered and left") {
  Journal journal(5);
  journal.begin(3);
  journal.doing("training");
  journal.mark_progress();
  const int64_t before = journal.moves();
  {
    const JournalSpan outer(&journal, {.what = "all_reduce", .along = "dp", .group = kAll, .bytes = 128});
    std::thread([&] {
      const JournalSpan inner(
          &journal, {.what = "a name that is far too long for it", .along = "pipeline axis", .group = kAll, .bytes = 1, .peer = 2});
      const std::vector<RankReport> reports = journal.look();
      REQUIRE(reports.size() == 1);
      CHECK(reports[0].entries.size() == 2);
      CHECK(reports[0].entries[0].inside == 1);
      CHECK(reports[0].entries[1].what.data() == std::string("a name that is far too "));
      CHECK(reports[0].entries[1].along.data() == std::string("pipelin"));
      CHECK(reports[0].entries[1].peer == 2);
    }).join();
  }
  CHECK(journal.moves() > before);
  const JournalSpan none(&journal, {.what = "all_reduce", .along = "dp", .group = {}, .bytes = 128});  // alone: nobody to wait for
  const RankReport report = journal.look().front();
  CHECK(report.rank == 5);
  CHECK(report.state == 'R');
  CHECK(report.step == 3);
  CHECK(report.part == 1);
  CHECK(report.doing == "training");
  CHECK(report.entries[0].what.data() == std::string("all_reduce"));
  CHECK(report.entries[0].inside == 0);
  CHECK(report.entries[0].number == 1);
  CHECK(report.entered.at(group_key("dp", kAll)) == 1);
  {
    const JournalSpan between_hosts(&journal, {.what = "add up", .along = "dp", .group = kAll, .bytes = 1, .hosts = true});
    const RankReport waits = journal.look().front();
    CHECK(waits.entries[0].number == 1);  // of its own
    CHECK(waits.entered.at(group_key("dp", kAll)) == 1);
    CHECK(waits.entered.at(group_key("dp", kAll, true)) == 1);
  }
  const int64_t moves = journal.moves();
  journal.disk_moved();  // beside the steps
  CHECK(journal.moves() == moves);
  journal.doing("saving");
  journal.disk_moved();
  CHECK(journal.moves() == moves + 2);
}

}  // namespace trireme
