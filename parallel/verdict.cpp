#include "parallel/verdict.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace trireme {
namespace {

std::string seconds_text(double seconds) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f s", seconds);
  return buffer;
}

std::string describe(const JournalEntry& entry) {
  std::string out = std::string(entry.what.data()) + " " + entry.along.data();
  if (entry.number > 0) out += " #" + std::to_string(entry.number);
  if (entry.peer >= 0) out += " with rank " + std::to_string(entry.peer);
  if (entry.bytes > 0) out += " (" + std::to_string(entry.bytes) + " bytes)";
  return out;
}

std::string list(const std::vector<int64_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < 8; ++i) out += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > 8 ? out + " and " + std::to_string(ranks.size() - 8) + " more" : out;
}

const JournalEntry* newest(const RankReport& report, bool inside) {
  const JournalEntry* last = nullptr;
  for (const JournalEntry& entry : report.entries)
    if ((entry.inside != 0) == inside && (last == nullptr || entry.since > last->since)) last = &entry;
  return last;
}

// Describes a rank that waits for no other.
std::string does(const RankReport& report) {
  if (report.state == 'D') return "waits for a disk or a device";
  if (report.waits_for_gpu) return "waits for its GPU";
  if (lacks_core(report.share)) return "is ready to run but has no core";
  return report.share.computes ? "computes" : "waits for no other rank";
}

// True if a rank could have made progress by now.
bool had_its_time(const RankReport& report, double limit) {
  const ProcessorShare& share = report.share;
  return share.counted >= limit && (!share.computes || share.used >= limit);
}

// True if a rank waits for a disk, or is not yet that far.
bool held_by_disk(const RankReport& report) {
  return report.doing != "training" && report.doing != "evaluating" && !report.share.computes;
}

class Judge {
 public:
  explicit Judge(const std::vector<RankReport>& ranks) : ranks_(ranks) {
    for (size_t i = 0; i < ranks.size(); ++i) places_[ranks[i].rank] = i;
    awaits_.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (const JournalEntry& entry : ranks[i].entries)
        if (entry.inside != 0) missing_from(i, entry);
      if (ranks[i].waits_for_gpu)
        for (const GpuWaits& waits : ranks[i].on_gpu) missing_on_gpu(i, waits);
    }
  }

  Verdict verdict() const {
    if (ranks_.empty()) return {.line = "no rank can be read", .shared = true};
    if (const size_t i = dead(); i < ranks_.size()) return about(i, "");
    if (const auto [i, other] = odd_one(); i < ranks_.size()) return about(i, other);
    if (beyond_ && std::ranges::all_of(ranks_, [](const RankReport& r) { return newest(r, true) != nullptr; }))
      return {.line = "all ranks of " + ranks_.front().host + " wait for others, on another node: rank " +
                      std::to_string(ranks_.front().rank) + " in " + describe(*newest(ranks_.front(), true)),
              .awaited = true,
              .shared = true};
    const auto [i, alone] = awaited();
    if (!alone && nobody_is_behind()) return unknown();
    Verdict verdict = about(i, "");
    verdict.shared = !alone;
    return verdict;
  }

 private:
  // Members of the group that have not entered rank i's wait: rank i waits for them.
  void missing_from(size_t i, const JournalEntry& entry) {
    const auto add = [&](int64_t rank) {
      if (const auto at = places_.find(rank); at == places_.end())
        beyond_ = true;
      else if (at->second != i)
        awaits_[i].insert(at->second);
    };
    if (entry.peer >= 0) return meets(i, entry) ? void() : add(entry.peer);
    const uint64_t key = group_key(entry.along.data(), entry.group);
    for (int64_t m = 0; m < entry.group.count; ++m) {
      const auto at = places_.find(entry.group.member(m));
      if (at == places_.end()) {
        beyond_ = true;
        continue;
      }
      const auto& entered = ranks_[at->second].entered;
      const auto count = entered.find(key);
      if (count == entered.end() || count->second < entry.number) add(entry.group.member(m));
    }
  }
  // Members of the group whose GPUs have entered fewer of its collectives than rank i's: rank i waits for them.
  void missing_on_gpu(size_t i, const GpuWaits& waits) {
    for (int64_t m = 0; m < waits.group.count; ++m) {
      const auto at = places_.find(waits.group.member(m));
      if (at == places_.end())
        beyond_ = true;
      else if (const int64_t theirs = entered_on_gpu(at->second, waits);
               theirs < waits.entered && awaits_[i].insert(at->second).second)
        on_gpu_[{i, at->second}] =
            text("their GPUs are in collective #", waits.entered, " along ", waits.along.data(), ", its GPU has entered ", theirs);
    }
  }
  int64_t entered_on_gpu(size_t i, const GpuWaits& like) const {
    for (const GpuWaits& waits : ranks_[i].on_gpu)
      if (waits.along == like.along && waits.group == like.group) return waits.entered;
    return 0;
  }

  // True if all wait for their GPUs and nothing shows for which of them.
  bool nobody_is_behind() const {
    return ranks_.size() > 1 && std::ranges::all_of(awaits_, [](const auto& awaits) { return awaits.empty(); }) &&
           std::ranges::all_of(ranks_, [](const RankReport& r) { return r.waits_for_gpu && !lacks_core(r.share); });
  }
  Verdict unknown() const {
    const RankReport& first = ranks_.front();
    std::string entered;
    for (const GpuWaits& waits : first.on_gpu)
      entered += text(entered.empty() ? " (" : ", ", waits.entered, " along ", waits.along.data(), " on rank ", first.rank);
    return {
        .line = text("no rank is known to be at fault: all ", ranks_.size(), " wait for their GPUs, and none of these has entered ",
                     "fewer collectives than another", entered, entered.empty() ? "" : ")", ", silent for ",
                     seconds_text(first.silent), ". Look for errors of GPUs and links (nvidia-smi, dmesg; NCCL_DEBUG=INFO)"),
        .awaited = true,
        .shared = true};
  }

  // True if the other end of a message has reached it.
  bool meets(size_t i, const JournalEntry& entry) const {
    const auto at = places_.find(entry.peer);
    if (at == places_.end()) return false;
    for (const JournalEntry& theirs : ranks_[at->second].entries)
      if (theirs.inside != 0 && theirs.peer == ranks_[i].rank && theirs.what != entry.what) return true;
    return false;
  }

  size_t dead() const { return static_cast<size_t>(std::ranges::find_if(ranks_, stopped_or_gone) - ranks_.begin()); }

  // Ranks in the same wait of a group must do the same: finds the rank that does something else,
  // and what most do.
  std::pair<size_t, std::string> odd_one() const {
    std::map<std::pair<uint64_t, int64_t>, std::vector<std::pair<size_t, const JournalEntry*>>> waits;
    for (size_t i = 0; i < ranks_.size(); ++i)
      for (const JournalEntry& entry : ranks_[i].entries)
        if (entry.inside != 0 && entry.number > 0)
          waits[{group_key(entry.along.data(), entry.group), entry.number}].emplace_back(i, &entry);
    for (const auto& [wait, members] : waits) {
      const auto like = [](const JournalEntry* a) {
        return [a](const auto& b) { return a->what == b.second->what && a->bytes == b.second->bytes; };
      };
      const auto votes = [&, &those = members](const auto& a) { return std::count_if(those.begin(), those.end(), like(a.second)); };
      const auto fewer = [&](const auto& a, const auto& b) { return votes(a) < votes(b); };
      const auto odd = std::min_element(members.begin(), members.end(), fewer);
      const auto most = std::max_element(members.begin(), members.end(), fewer);
      if (votes(*odd) < static_cast<int64_t>(members.size()))
        return {odd->first,
                list({ranks_[most->first].rank}) + (votes(*most) > 1 ? " and others" : "") + " in " + describe(*most->second)};
    }
    return {ranks_.size(), ""};
  }

  // Follows the chains of waits to the rank that waits for nobody. In a cycle, it takes the rank
  // that most wait for; among equals one that has no core, which cannot do its part of a wait that all
  // have entered, or else the one that is ahead, since it has skipped something. Returns false with the
  // latter two.
  std::pair<size_t, bool> awaited() const {
    std::vector<int64_t> waiting(ranks_.size(), 0);
    for (const auto& awaits : awaits_)
      for (const size_t other : awaits) ++waiting[other];
    const auto guilt = [&](size_t i) {
      const RankReport& r = ranks_[i];
      return std::tuple(awaits_[i].empty() && waiting[i] > 0, waiting[i], lacks_core(r.share),
                        awaits_[i].empty() && !r.waits_for_gpu, awaits_[i].empty() ? -r.step : r.step,
                        awaits_[i].empty() ? -r.part : r.part);
    };
    size_t culprit = 0;
    for (size_t i = 1; i < ranks_.size(); ++i)
      if (guilt(i) > guilt(culprit)) culprit = i;
    return {culprit, std::get<0>(guilt(culprit))};
  }

  Verdict about(size_t i, const std::string& others_do) const {
    const RankReport& r = ranks_[i];
    Verdict verdict{.rank = r.rank, .line = {}, .awaited = std::ranges::any_of(ranks_, [&](const RankReport& other) {
                                                  return other.rank != r.rank &&
                                                         (newest(other, true) != nullptr || other.waits_for_gpu);
                                                })};
    const JournalEntry *in = newest(r, true), *left = newest(r, false);
    std::string& line = verdict.line;
    line = "rank " + std::to_string(r.rank) + " on " + r.host + " (process " + std::to_string(r.process) + ") ";
    if (r.state == 'T' || r.state == 't')
      line += "is stopped by a signal";
    else if (r.state == 'Z' || r.state == 'X')
      line += "is gone";
    else if (in != nullptr)
      line += "is in " + describe(*in);
    else
      line += does(r);
    if (in != nullptr && line.find(describe(*in)) == std::string::npos) line += ", in " + describe(*in);
    line += ", silent for " + seconds_text(r.silent) + ", " + (r.doing.empty() ? "starting" : r.doing);
    if (r.step > 0) line += ", step " + std::to_string(r.step) + " part " + std::to_string(r.part);
    if (in == nullptr && left != nullptr) line += ", last in " + describe(*left);
    if (r.share.counted > 0)
      line += ", with " + seconds_text(r.share.used) + " of processor time and " + seconds_text(r.share.unserved) +
              " ready to run without a core";
    if (in != nullptr) verdict.thread = in->thread;
    if (!others_do.empty()) line += "; " + others_do;
    std::vector<int64_t> waiting;
    const JournalEntry* wait = nullptr;
    for (size_t j = 0; j < ranks_.size(); ++j)
      if (awaits_[j].contains(i)) {
        waiting.push_back(ranks_[j].rank);
        if (wait == nullptr) wait = newest(ranks_[j], true);
      }
    if (waiting.empty() || !others_do.empty()) return verdict;
    line += "; " + list(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " for it";
    if (const auto gpu = on_gpu_.find({places_.at(waiting.front()), i}); gpu != on_gpu_.end())
      line += ": " + gpu->second;
    else if (wait != nullptr)
      line += " in " + describe(*wait);
    return verdict;
  }

  const std::vector<RankReport>& ranks_;
  std::map<int64_t, size_t> places_;                         // index in ranks_ of each rank
  std::vector<std::set<size_t>> awaits_;                     // by index: the ranks it waits for
  std::map<std::pair<size_t, size_t>, std::string> on_gpu_;  // why a rank awaits another, by its GPU's count
  bool beyond_ = false;                                      // some wait for ranks whose journals cannot be read
};

}  // namespace

bool stopped_or_gone(const RankReport& report) {
  return report.state == 'T' || report.state == 't' || report.state == 'Z' || report.state == 'X';
}

bool lacks_core(const ProcessorShare& share) { return share.unserved > share.counted; }

Verdict judge(const std::vector<RankReport>& ranks) { return Judge(ranks).verdict(); }

Ruling rule(const Verdict& verdict, const std::vector<RankReport>& ranks, double limit) {
  const auto suspect = [&](const RankReport& r) { return verdict.shared || r.rank == verdict.rank; };
  if (std::ranges::any_of(ranks, [&](const RankReport& r) { return suspect(r) && stopped_or_gone(r); })) return Ruling::hang;
  const auto guilty = [&](const RankReport& r) { return !suspect(r) || had_its_time(r, limit); };
  const bool all = std::ranges::all_of(ranks, guilty);
  if (verdict.awaited) return all ? Ruling::hang : Ruling::slow;
  return all && std::ranges::all_of(ranks, [&](const RankReport& r) { return !suspect(r) || held_by_disk(r); }) ? Ruling::hang
                                                                                                                : Ruling::unawaited;
}

}  // namespace trireme
