#include "parallel/verdict.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/wait_graph.h"

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
  explicit Judge(const std::vector<RankReport>& ranks) : ranks_(ranks), waits_(ranks) {}

  Verdict verdict() const {
    if (ranks_.empty()) return {.line = "no rank can be read", .shared = true};
    if (const size_t i = dead(); i < ranks_.size()) return about(i, "");
    if (const auto [i, other] = odd_one(); i < ranks_.size()) return about(i, other);
    if (waits_.beyond() && std::ranges::all_of(ranks_, [](const RankReport& r) { return newest(r, true) != nullptr; }))
      return {.line = "all ranks of " + ranks_.front().host + " wait for others, on another node: rank " +
                      std::to_string(ranks_.front().rank) + " in " + describe(*newest(ranks_.front(), true)),
              .awaited = true,
              .shared = true};
    const auto [i, alone] = awaited();
    if (!alone && nobody_is_behind()) return unknown();
    Verdict verdict = about(i, "");
    verdict.shared = !alone;
    if (verdict.shared) verdict.host.clear();
    return verdict;
  }

 private:
  // True if all wait for their GPUs and nothing shows for which of them.
  bool nobody_is_behind() const {
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (waits_.waits(i) || !ranks_[i].waits_for_gpu || lacks_core(ranks_[i].share)) return false;
    return ranks_.size() > 1;
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

  size_t dead() const { return static_cast<size_t>(std::ranges::find_if(ranks_, stopped_or_gone) - ranks_.begin()); }

  // Ranks in the same wait of a group must do the same: finds the rank that does something else,
  // and what most do.
  std::pair<size_t, std::string> odd_one() const {
    std::map<std::pair<uint64_t, int64_t>, std::vector<std::pair<size_t, const JournalEntry*>>> waits;
    for (size_t i = 0; i < ranks_.size(); ++i)
      for (const JournalEntry& entry : ranks_[i].entries)
        if (entry.inside != 0 && entry.number > 0)
          waits[{group_key(entry.along.data(), entry.group, entry.hosts != 0), entry.number}].emplace_back(i, &entry);
    for (const auto& [wait, members] : waits) {
      const auto does = [](const JournalEntry* e) { return std::pair(std::string(e->what.data()), e->bytes); };
      std::map<std::pair<std::string, int64_t>, int64_t> votes;
      for (const auto& [i, entry] : members) ++votes[does(entry)];
      if (votes.size() == 1) continue;
      const auto fewer = [&](const auto& a, const auto& b) { return votes[does(a.second)] < votes[does(b.second)]; };
      const auto odd = std::ranges::min_element(members, fewer), most = std::ranges::max_element(members, fewer);
      return {odd->first, list({ranks_[most->first].rank}) + (votes[does(most->second)] > 1 ? " and others" : "") + " in " +
                              describe(*most->second)};
    }
    return {ranks_.size(), ""};
  }

  // Follows the chains of waits to the rank that waits for nobody. In a cycle, it takes the rank
  // that most wait for; among equals one that has no core, which cannot do its part of a wait that all
  // have entered, or else the one that is ahead, since it has skipped something. Returns false with the
  // latter two.
  std::pair<size_t, bool> awaited() const {
    const auto guilt = [&](size_t i) {
      const RankReport& r = ranks_[i];
      const bool waits = waits_.waits(i);
      const int64_t waiting = waits_.waiting_for(i);
      return std::tuple(!waits && waiting > 0, waiting, lacks_core(r.share), !waits && !r.waits_for_gpu, waits ? r.step : -r.step,
                        waits ? r.part : -r.part);
    };
    size_t culprit = 0;
    for (size_t i = 1; i < ranks_.size(); ++i)
      if (guilt(i) > guilt(culprit)) culprit = i;
    return {culprit, std::get<0>(guilt(culprit))};
  }

  Verdict about(size_t i, const std::string& others_do) const {
    const RankReport& r = ranks_[i];
    const auto waits = [&](const RankReport& other) {
      return other.rank != r.rank && (newest(other, true) != nullptr || other.waits_for_gpu);
    };
    Verdict verdict{.rank = r.rank, .host = r.host, .line = {}, .awaited = std::ranges::any_of(ranks_, waits)};
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
    WaitGraph::OnGpu gpu;
    for (size_t j = 0; j < ranks_.size(); ++j)
      if (waits_.waits_for(j, i)) {
        waiting.push_back(ranks_[j].rank);
        if (waiting.size() == 1) wait = newest(ranks_[j], true), gpu = waits_.on_gpu(j, i);
      }
    if (waiting.empty() || !others_do.empty()) return verdict;
    line += "; " + list(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " for it";
    if (gpu.waits != nullptr)
      line += text(": their GPUs are in collective #", gpu.waits->entered, " along ", gpu.waits->along.data(),
                   ", its GPU has entered ", gpu.other);
    else if (wait != nullptr)
      line += " in " + describe(*wait);
    return verdict;
  }

  const std::vector<RankReport>& ranks_;
  WaitGraph waits_;
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
