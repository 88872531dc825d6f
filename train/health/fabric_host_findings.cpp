// Findings about hosts: disks, software and clocks.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/median.h"
#include "base/number_format.h"
#include "train/health/fabric_findings.h"
#include "train/health/fabric_judges.h"

namespace trireme {
namespace {

constexpr double kClockSkew = 0.1;       // seconds
constexpr double kSlowDisk = 0.2;        // of the median
constexpr double kLeastFree = 64 << 20;  // bytes, where no config says more

// Names in one list but not in the other.
std::string difference_of(const std::string& mine, const std::string& usual) {
  const auto words = [](const std::string& list) {
    std::set<std::string> all;
    for (size_t begin = 0; begin < list.size();) {
      const size_t end = std::min(list.find(' ', begin), list.size());
      all.insert(list.substr(begin, end - begin)), begin = end + 1;
    }
    return all;
  };
  const std::set<std::string> a = words(mine), b = words(usual);
  const auto only = [](const std::set<std::string>& in, const std::set<std::string>& out) {
    std::string list;
    for (const std::string& word : in)
      if (!out.contains(word)) list += (list.empty() ? "" : " ") + word;
    return list.empty() ? std::string("nothing") : list;
  };
  return only(a, b) + " instead of " + only(b, a);
}

// The first rank of each host that holds for.
std::vector<int64_t> first_on_hosts(const FabricFacts& facts, const auto& holds) {
  std::set<std::string> known;
  std::vector<int64_t> ranks;
  for (size_t r = 0; r < facts.ranks.size(); ++r)
    if (holds(facts.ranks[r]) && known.insert(facts.ranks[r].host).second) ranks.push_back(static_cast<int64_t>(r));
  return ranks;
}

// A disk that all of several hosts find full is shared: no host is to blame.
void judge_free_space(const FabricFacts& facts, FabricFindings& findings) {
  const double need = std::max(kLeastFree, facts.disk_need);
  const auto all = first_on_hosts(facts, [](const MachineFacts& m) { return m.disk_free >= 0; });
  const auto full = first_on_hosts(facts, [&](const MachineFacts& m) { return m.disk_free >= 0 && m.disk_free < need; });
  for (const int64_t rank : full) {
    FabricFinding f = finding_about(facts, "disk space", {rank});
    f.condemns = all.size() == 1 || full.size() < all.size();
    f.problem = rank_on_host(facts, rank) + ": " + facts.directory + " has " +
                human_bytes(facts.ranks[static_cast<size_t>(rank)].disk_free) + " free, but " +
                (facts.disk_need > kLeastFree ? "two checkpoints need " : "a run needs at least ") + human_bytes(need);
    f.remedy = "free space there, or set train.runs to another directory";
    findings.push_back(f);
  }
}

}  // namespace

void judge_disks(const FabricFacts& facts, FabricFindings& findings) {
  for (const int64_t rank : first_on_hosts(facts, [](const MachineFacts& m) { return !m.disk_problem.empty(); })) {
    FabricFinding f = finding_about(facts, "disk", {rank});
    f.condemns = true;
    f.problem = rank_on_host(facts, rank) + " cannot write: " + facts.ranks[static_cast<size_t>(rank)].disk_problem;
    f.remedy = "make it writable, or set train.runs to another directory";
    findings.push_back(f);
  }
  judge_free_space(facts, findings);
  std::vector<double> rates;
  for (const MachineFacts& m : facts.ranks)
    if (m.disk_rate > 0) rates.push_back(m.disk_rate);
  if (rates.size() < 3) return;
  const double usual = upper_median(rates);
  for (const int64_t rank :
       first_on_hosts(facts, [&](const MachineFacts& m) { return m.disk_rate > 0 && m.disk_rate < kSlowDisk * usual; })) {
    FabricFinding f = finding_about(facts, "disk", {rank});
    f.problem = rank_on_host(facts, rank) + " writes " + facts.directory + " at " +
                human_si(facts.ranks[static_cast<size_t>(rank)].disk_rate) + "B/s, the median host at " + human_si(usual) + "B/s";
    f.remedy = "look at the disk and its network there: the slowest host ends a save";
    findings.push_back(f);
  }
}

// Hosts whose program or libraries are not those of most ranks; of equally many, those of rank 0 count.
void judge_software(const FabricFacts& facts, FabricFindings& findings) {
  for (const auto& [check, field] : {std::pair{"program", &MachineFacts::program}, {"libraries", &MachineFacts::libraries}}) {
    const RankGroups groups = ranks_by(facts, field);
    const auto weight = [](const auto& group) { return std::pair(group.second.size(), -group.second.front()); };
    const auto usual = std::ranges::max_element(groups, {}, weight);
    for (const auto& [value, ranks] : groups) {
      if (value == usual->first) continue;
      FabricFinding f = finding_about(facts, check, ranks);
      f.condemns = true;
      f.problem = rank_on_host(facts, ranks.front()) + (ranks.size() > 1 ? " and others have other " : " has another ") + check +
                  " than most ranks: " + difference_of(value, usual->first);
      f.remedy = "install the same on all hosts";
      findings.push_back(f);
    }
  }
}

void judge_clocks(const FabricFacts& facts, FabricFindings& findings) {
  std::set<std::string> known;
  for (size_t r = 0; r < facts.ranks.size(); ++r) {
    const MachineFacts& m = facts.ranks[r];
    if (std::abs(m.clock_ahead) - m.clock_margin <= kClockSkew || !known.insert(m.host).second) continue;
    FabricFinding f = finding_about(facts, "clock", {static_cast<int64_t>(r)});
    f.problem = rank_on_host(facts, static_cast<int64_t>(r)) + ": its clock is " + human_seconds(std::abs(m.clock_ahead)) +
                (m.clock_ahead > 0 ? " ahead of" : " late relative to") + " rank 0's";
    f.remedy = "set up NTP there: times of logs and traces will not match";
    findings.push_back(f);
  }
}

}  // namespace trireme
