// Who waits for whom, against the definition, on random reports; and verdicts on 16,384 ranks in any state.
#include "parallel/wait_graph.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/philox.h"
#include "parallel/verdict.h"
#include "test/catch.h"

namespace trireme {
namespace {

JournalEntry inside(const char* what, const char* along, const GroupRanks& group, int64_t number) {
  JournalEntry e{.group = group, .number = number, .bytes = 64, .since = number + 1, .thread = 7, .inside = 1};
  std::strncpy(e.what.data(), what, e.what.size() - 1);
  std::strncpy(e.along.data(), along, e.along.size() - 1);
  return e;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(philox64(seed_, next_++) % static_cast<uint64_t>(n)); }

 private:
  uint64_t seed_, next_ = 0;
};

// Up to 24 ranks, some of which have no report, in waits of three axes and in messages, with counts that fit these or not.
std::vector<RankReport> random_reports(Dice& dice) {
  const int32_t n = static_cast<int32_t>(2 + dice.below(23)), tp = static_cast<int32_t>(1 + dice.below(4));
  std::vector<RankReport> ranks;
  for (int32_t r = 0; r < n; ++r) {
    RankReport report{.rank = r,
                      .process = 100 + r,
                      .host = "n",
                      .doing = "training",
                      .waits_for_gpu = dice.below(3) == 0,
                      .entries = {},
                      .entered = {}};
    const std::pair<const char*, GroupRanks> axes[] = {
        {"all", {.first = 0, .stride = 1, .count = n}},
        {"tp", {.first = r / tp * tp, .stride = 1, .count = tp}},
        {"dp", {.first = r % tp, .stride = tp, .count = (n - r % tp + tp - 1) / tp}}};
    for (const auto& [along, group] : axes) {
      if (dice.below(4) > 0) report.entered[group_key(along, group)] = dice.below(4);
      if (dice.below(2) == 0) report.entries.push_back(inside("all_reduce", along, group, 1 + dice.below(4)));
      GpuWaits gpu{.group = group, .entered = dice.below(4)};
      std::strncpy(gpu.along.data(), along, gpu.along.size() - 1);
      if (dice.below(2) == 0) report.on_gpu.push_back(gpu);
    }
    if (dice.below(4) == 0) {
      report.entries.push_back(inside(dice.below(2) == 0 ? "send" : "receive", "pp", {.first = 0, .stride = 1, .count = n}, 0));
      report.entries.back().peer = static_cast<int32_t>(dice.below(n));
    }
    if (dice.below(12) > 0) ranks.push_back(report);
  }
  return ranks;
}

int64_t entered(const RankReport& r, const JournalEntry& entry) {
  const auto count = r.entered.find(group_key(entry.along.data(), entry.group));
  return count == r.entered.end() ? 0 : count->second;
}
// Unknown for a GPU that does not count.
std::optional<int64_t> entered_on_gpu(const RankReport& r, const GpuWaits& like) {
  for (const GpuWaits& waits : r.on_gpu)
    if (waits.along == like.along && waits.group == like.group) return waits.entered;
  return std::nullopt;
}

// The waits of one rank that another rank would end, by definition: of its threads, then of its GPU.
std::pair<int64_t, int64_t> waits_between(const RankReport& one, const RankReport& other) {
  std::pair<int64_t, int64_t> waits;
  for (const JournalEntry& entry : one.entries) {
    const auto meets = [&](const JournalEntry& theirs) { return theirs.peer == one.rank && theirs.what != entry.what; };
    if (entry.peer >= 0)
      waits.first += entry.peer == other.rank && std::ranges::none_of(other.entries, meets);
    else
      waits.first += entry.group.has(other.rank) && entered(other, entry) < entry.number;
  }
  for (const GpuWaits& gpu : one.on_gpu)
    waits.second +=
        one.waits_for_gpu && gpu.group.has(other.rank) && entered_on_gpu(other, gpu).value_or(gpu.entered) < gpu.entered;
  return waits;
}

// Ranks of a mesh of tp 8, pp 16 and the rest dp, in waits of two threads each, and in the GPU's counts.
std::vector<RankReport> many(int32_t count, const std::function<void(RankReport&)>& change) {
  std::vector<RankReport> ranks;
  ranks.reserve(static_cast<size_t>(count));
  for (int32_t r = 0; r < count; ++r) {
    const GroupRanks all{.first = 0, .stride = 1, .count = count}, tp{.first = r / 8 * 8, .stride = 1, .count = 8},
        dp{.first = r % 128, .stride = 128, .count = count / 128};
    RankReport report{
        .rank = r, .process = r + 1, .host = "n", .step = 9, .doing = "training", .silent = 6, .entries = {}, .entered = {}};
    report.entries = {inside("largest", "all", all, 5), inside("all_reduce", "dp", dp, 7)};
    report.entered = {{group_key("all", all), 5}, {group_key("dp", dp), 7}, {group_key("tp", tp), 9}};
    GpuWaits gpu{.group = all, .entered = 3};
    std::strncpy(gpu.along.data(), "all", gpu.along.size() - 1);
    report.on_gpu = {gpu};
    change(report);
    ranks.push_back(report);
  }
  return ranks;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("who waits for whom is what the definition says, on random reports") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Dice dice(seed);
    const std::vector<RankReport> ranks = random_reports(dice);
    std::set<int64_t> known;
    for (const RankReport& r : ranks) known.insert(r.rank);
    const WaitGraph graph(ranks);
    bool beyond = false;
    for (const RankReport& r : ranks) {
      const auto absent = [&](const GroupRanks& group) {
        for (int64_t m = 0; m < group.count; ++m) beyond |= !known.contains(group.member(m));
      };
      for (const JournalEntry& e : r.entries) e.peer >= 0 ? beyond |= !known.contains(e.peer), void() : absent(e.group);
      for (const GpuWaits& gpu : r.on_gpu)
        if (r.waits_for_gpu) absent(gpu.group);
    }
    INFO("seed " << seed);
    CHECK(graph.beyond() == beyond);
    std::vector<int64_t> waiting(ranks.size(), 0);
    for (size_t i = 0; i < ranks.size(); ++i) {
      bool any = false;
      for (size_t j = 0; j < ranks.size(); ++j) {
        if (i == j) continue;
        const auto [threads, gpu] = waits_between(ranks[i], ranks[j]);
        waiting[j] += threads + gpu, any |= threads + gpu > 0;
        if (graph.waits_for(i, j) != (threads + gpu > 0)) FAIL_CHECK(i << " waits for " << j << ": " << !(threads + gpu > 0));
        if ((graph.on_gpu(i, j).waits != nullptr) != (threads == 0 && gpu > 0)) FAIL_CHECK(i << " by its GPU for " << j);
      }
      if (graph.waits(i) != any) FAIL_CHECK(i << " waits: " << !any);
    }
    for (size_t j = 0; j < ranks.size(); ++j)
      if (graph.waiting_for(j) != waiting[j]) FAIL_CHECK(j << ": " << graph.waiting_for(j) << " instead of " << waiting[j]);
  }
}

TEST_CASE("16,384 ranks in any state are judged within a second", "[unsanitized]") {
  constexpr int32_t kOne = 1900;
  const std::pair<const char*, std::function<void(RankReport&)>> states[] = {
      {"one computes",
       [](RankReport& r) {
         if (r.rank != kOne) return;
         for (auto& [key, number] : r.entered) --number;
         r.entries.clear();
       }},
      {"one is stopped", [](RankReport& r) { r.state = r.rank == kOne ? 'T' : 'R'; }},
      {"one does something else",
       [](RankReport& r) {
         if (r.rank == kOne) std::strncpy(r.entries[0].what.data(), "broadcast", 24);
       }},
      {"one's GPU is late",
       [](RankReport& r) {
         r.entries.clear(), r.waits_for_gpu = true;
         if (r.rank == kOne) r.on_gpu[0].entered = 2;
       }},
      {"each has entered another number",
       [](RankReport& r) {
         r.entries[0].number = 20000 - r.rank + (r.rank > kOne ? 0 : 10);
         r.entered.begin()->second = r.rank;
         for (auto& [key, number] : r.entered) number = r.entries[0].number;
         if (r.rank == kOne) r.entries.clear();
       }},
      {"all wait in the same", [](RankReport&) {}},
  };
  std::string table;
  for (const auto& [name, change] : states) {
    table += name;
    for (const int32_t count : {2048, 8192, 16384}) {
      const std::vector<RankReport> ranks = many(count, change);
      const double begin = processor_seconds();
      const Verdict verdict = judge(ranks);
      const Ruling ruling = rule(verdict, ranks, 5);
      const double took = processor_seconds() - begin;
      table += text(count == 2048 ? ": " : ", ", took);
      INFO(name << ", " << count << " ranks: " << took << " s: " << verdict.line << ", ruling " << static_cast<int>(ruling));
      CHECK(took < 1);
      if (std::string(name).starts_with("one")) CHECK(verdict.rank == kOne);
    }
    table += '\n';
  }
  WARN("seconds for a verdict on 2,048, 8,192 and 16,384 ranks\n" << table);
}

}  // namespace trireme
