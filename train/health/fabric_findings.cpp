#include "train/health/fabric_findings.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/median.h"
#include "base/number_format.h"
#include "train/health/fabric_judges.h"

namespace trireme {
namespace {

// Differences of rates that a sound machine shows at most: of products, and of copies, whose memory ranks of a host share.
struct RateTolerance {
  double gpu, cores, shared_cores;
  double of(const MachineFacts& m) const { return m.gpu ? gpu : m.shares_cores ? shared_cores : cores; }
};
constexpr RateTolerance kProductTolerance{.gpu = 0.05, .cores = 0.15, .shared_cores = 0.5};
constexpr RateTolerance kCopyTolerance{.gpu = 0.15, .cores = 0.5, .shared_cores = 0.6};
constexpr double kMostTolerance = 0.7;  // below 30 % is slow on any machine

// A rate of a rank, with its spread.
struct RankRate {
  const char* check;
  double MachineFacts::*rate;
  double MachineFacts::*spread;
  RateTolerance tolerance;
  const char* unit;
};
constexpr RankRate kRankRates[] = {
    {"products", &MachineFacts::products, &MachineFacts::products_spread, kProductTolerance, "FLOP/s"},
    {"copies", &MachineFacts::copies, &MachineFacts::copies_spread, kCopyTolerance, "B/s"}};

// The ranks of each kind whose rate is low, with the rate that they are compared with.
void each_slow_rank(const FabricFacts& facts, const RankRate& of, const std::function<void(int64_t rank, double usual)>& slow) {
  for (const auto& [kind, ranks] : ranks_by(facts, &MachineFacts::kind)) {
    std::vector<double> rates, spreads;
    for (const int64_t r : ranks) {
      const MachineFacts& m = facts.ranks[static_cast<size_t>(r)];
      rates.push_back(m.*of.rate), spreads.push_back(m.*of.spread);
    }
    const double usual = upper_median(rates), spread = upper_median(spreads);
    for (const int64_t r : ranks) {
      const MachineFacts& m = facts.ranks[static_cast<size_t>(r)];
      const double tolerance = std::min(kMostTolerance, std::max(of.tolerance.of(m), 2 * std::max(spread, m.*of.spread)));
      if (m.*of.rate < (1 - tolerance) * usual) slow(r, usual);
    }
  }
}

void judge_rates(const FabricFacts& facts, FabricFindings& findings) {
  for (const RankRate& of : kRankRates)
    each_slow_rank(facts, of, [&](int64_t rank, double usual) {
      FabricFinding f = finding_about(facts, of.check, {rank});
      const MachineFacts& m = facts.ranks[static_cast<size_t>(rank)];
      const double rate = m.*of.rate;
      f.condemns = m.gpu || !m.shares_cores;  // else its neighbours may be the cause
      f.problem = rank_on_host(facts, rank) + ": " + of.check + " at " + human_si(rate) + of.unit + ", " +
                  fixed(100 * rate / usual, 0) + " % of the median of its kind, " + human_si(usual) + of.unit;
      f.remedy = std::string("look for throttled clocks and other programs there, or ") + kLeaveHostOut;
      findings.push_back(f);
    });
}

// Products of the same numbers have the same bits on all ranks of a kind. Where no majority exists, nobody knows who is right.
void judge_bits(const FabricFacts& facts, FabricFindings& findings) {
  std::set<int64_t> found;
  for (size_t r = 0; r < facts.ranks.size(); ++r) {
    const MachineFacts& m = facts.ranks[r];
    if (m.products_differ == 0) continue;
    const auto rank = static_cast<int64_t>(r);
    FabricFinding f = finding_about(facts, "product bits", {rank});
    f.condemns = true;
    f.problem = rank_on_host(facts, rank) + ": " + std::to_string(m.products_differ) + " of " + std::to_string(m.products_checked) +
                " equal products had other bits than its first: silent data corruption";
    f.remedy = kLeaveHostOut;
    findings.push_back(f), found.insert(rank);
  }
  for (auto [kind, ranks] : ranks_by(facts, &MachineFacts::kind)) {
    std::erase_if(ranks, [&](int64_t rank) { return found.contains(rank); });
    RankGroups by_bits;
    for (const int64_t r : ranks) by_bits[facts.ranks[static_cast<size_t>(r)].product_bits].push_back(r);
    if (by_bits.size() < 2) continue;
    const bool majority = std::ranges::any_of(by_bits, [&](const auto& g) { return 2 * g.second.size() > ranks.size(); });
    if (!majority) {
      FabricFinding f = finding_about(facts, "product bits", ranks);
      f.condemns = f.hosts.size() == 1;
      f.problem = "ranks " + std::to_string(ranks.front()) + " to " + std::to_string(ranks.back()) +
                  " of one kind compute equal products with " + std::to_string(by_bits.size()) +
                  " different results, none of them in the majority: silent data corruption";
      f.remedy = "run this check with more hosts of that kind, to see which is wrong";
      findings.push_back(f);
      continue;
    }
    for (const auto& [bits, wrong] : by_bits)
      for (const int64_t rank : wrong) {
        if (2 * wrong.size() > ranks.size()) continue;
        FabricFinding f = finding_about(facts, "product bits", {rank});
        f.condemns = true;
        f.problem = rank_on_host(facts, rank) + " computes a product with other bits than most of the " +
                    std::to_string(ranks.size()) + " ranks of its kind: silent data corruption";
        f.remedy = kLeaveHostOut;
        findings.push_back(f);
      }
  }
}

void judge_memory(const FabricFacts& facts, FabricFindings& findings) {
  for (size_t r = 0; r < facts.ranks.size(); ++r) {
    const MachineFacts& m = facts.ranks[r];
    if (m.memory_errors == 0) continue;
    FabricFinding f = finding_about(facts, "memory", {static_cast<int64_t>(r)});
    f.condemns = true;
    f.problem = rank_on_host(facts, static_cast<int64_t>(r)) + ": " + std::to_string(m.memory_errors) + " words of " +
                human_bytes(static_cast<double>(m.memory_bytes)) + " of memory were read otherwise than written";
    f.remedy = kLeaveHostOut;
    findings.push_back(f);
  }
}

}  // namespace

RankGroups ranks_by(const FabricFacts& facts, std::string MachineFacts::*field) {
  RankGroups groups;
  for (size_t r = 0; r < facts.ranks.size(); ++r) groups[facts.ranks[r].*field].push_back(static_cast<int64_t>(r));
  return groups;
}

const std::string& host_of(const FabricFacts& facts, int64_t rank) { return facts.ranks[static_cast<size_t>(rank)].host; }

std::string rank_on_host(const FabricFacts& facts, int64_t rank) {
  return "rank " + std::to_string(rank) + " on " + host_of(facts, rank);
}

FabricFinding finding_about(const FabricFacts& facts, const char* check, std::vector<int64_t> ranks) {
  FabricFinding finding{.check = check, .ranks = std::move(ranks), .hosts = {}, .problem = {}, .remedy = {}};
  for (const int64_t rank : finding.ranks)
    if (std::ranges::find(finding.hosts, host_of(facts, rank)) == finding.hosts.end())
      finding.hosts.push_back(host_of(facts, rank));
  return finding;
}

std::vector<int64_t> slow_ranks(const FabricFacts& facts) {
  std::set<int64_t> slow;
  for (const RankRate& of : kRankRates) each_slow_rank(facts, of, [&](int64_t rank, double) { slow.insert(rank); });
  return {slow.begin(), slow.end()};
}

std::vector<FabricFinding> judge_fabric(const FabricFacts& facts) {
  std::vector<FabricFinding> findings;
  judge_bits(facts, findings);
  judge_memory(facts, findings);
  judge_software(facts, findings);
  judge_disks(facts, findings);
  judge_rates(facts, findings);
  judge_links(facts, findings);
  judge_sums(facts, findings);
  judge_clocks(facts, findings);
  return findings;
}

std::vector<std::string> condemned_hosts(const FabricFindings& findings) {
  std::vector<std::string> hosts;
  for (const FabricFinding& finding : findings)
    for (const std::string& host : finding.hosts)
      if (finding.condemns && std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  return hosts;
}

std::string describe(const FabricFinding& finding) { return finding.problem + "; " + finding.remedy; }

}  // namespace trireme
