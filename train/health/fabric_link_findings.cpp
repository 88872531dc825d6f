// Findings about links between ranks, and about sums of groups of ranks.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/median.h"
#include "base/number_format.h"
#include "train/health/fabric_findings.h"
#include "train/health/fabric_judges.h"

namespace trireme {
namespace {

constexpr double kSlow = 0.5;         // of the median
constexpr double kSlowOnCores = 0.2;  // between ranks of a host that share its cores: they also copy the messages
constexpr size_t kFewLinks = 3;       // whose median says nothing
constexpr size_t kFewGroups = 3;      // likewise

// Links of one size that stay on a host, or that join hosts: these differ by far.
using LinkClass = std::pair<int64_t, bool>;
LinkClass class_of(const FabricFacts& facts, const LinkFacts& link) {
  return {link.bytes, host_of(facts, link.from) == host_of(facts, link.to)};
}

// The part of the median below which a link is slow.
double slow_part(const FabricFacts& facts, const LinkFacts& link) {
  const auto shares = [&](int64_t rank) { return facts.ranks[static_cast<size_t>(rank)].shares_cores; };
  const bool inside = host_of(facts, link.from) == host_of(facts, link.to);
  return inside && (shares(link.from) || shares(link.to)) ? kSlowOnCores : kSlow;
}

std::map<LinkClass, double> usual_rates(const FabricFacts& facts) {
  std::map<LinkClass, std::vector<double>> rates;
  for (const LinkFacts& link : facts.links) rates[class_of(facts, link)].push_back(link.rate);
  std::map<LinkClass, double> usual;
  for (const auto& [of, all] : rates) usual[of] = all.size() < kFewLinks ? 0 : upper_median(all);
  return usual;
}

// An end of a link: a rank, and for links between hosts its host.
std::string end_of(const FabricFacts& facts, const LinkFacts& link, int64_t rank) {
  return host_of(facts, link.from) == host_of(facts, link.to) ? rank_on_host(facts, rank) : host_of(facts, rank);
}

struct EndLinks {
  size_t all = 0;
  std::vector<LinkFacts> slow;
  bool is_cause() const { return slow.size() >= 2 && 2 * slow.size() > all; }
};

// The end of which most links are slow, if there is one.
std::map<std::string, EndLinks> links_by_end(const FabricFacts& facts, const std::vector<LinkFacts>& slow) {
  std::map<std::string, EndLinks> ends;
  for (const LinkFacts& link : facts.links)
    for (const int64_t rank : {link.from, link.to}) ++ends[end_of(facts, link, rank)].all;
  for (const LinkFacts& link : slow)
    for (const int64_t rank : {link.from, link.to}) ends[end_of(facts, link, rank)].slow.push_back(link);
  return ends;
}

std::string rate_words(const LinkFacts& link, double usual) {
  return human_si(link.rate) + "B/s in messages of " + human_bytes(static_cast<double>(link.bytes)) + ", the median link at " +
         human_si(usual) + "B/s";
}

bool same_link(const LinkFacts& a, const LinkFacts& b) {
  return std::tie(a.from, a.to, a.bytes) == std::tie(b.from, b.to, b.bytes);
}

// Takes the links of an end that is slow to most others out of the list.
FabricFinding blame_end(const FabricFacts& facts, const std::string& end, const EndLinks& links, std::vector<LinkFacts>& slow) {
  const LinkFacts& first = links.slow.front();
  const bool from = end_of(facts, first, first.from) == end;
  FabricFinding f = finding_about(facts, "link", {from ? first.from : first.to});
  f.condemns = true;
  f.problem = end + ": " + std::to_string(links.slow.size()) + " of its " + std::to_string(links.all) +
              " links are slow; that to " + rank_on_host(facts, from ? first.to : first.from) + " has " +
              rate_words(first, usual_rates(facts).at(class_of(facts, first)));
  f.remedy = std::string("look at its network, or ") + kLeaveHostOut;
  std::erase_if(slow, [&](const LinkFacts& link) {
    return std::ranges::any_of(links.slow, [&](const LinkFacts& known) { return same_link(known, link); });
  });
  return f;
}

}  // namespace

std::vector<LinkFacts> slow_links(const FabricFacts& facts) {
  const std::map<LinkClass, double> usual = usual_rates(facts);
  std::vector<LinkFacts> slow;
  for (const LinkFacts& link : facts.links)
    if (link.rate < slow_part(facts, link) * usual.at(class_of(facts, link))) slow.push_back(link);
  return slow;
}

double sound_rate(const FabricFacts& facts, const LinkFacts& link) {
  return slow_part(facts, link) * usual_rates(facts).at(class_of(facts, link));
}

void judge_links(const FabricFacts& facts, FabricFindings& findings) {
  std::vector<LinkFacts> slow = slow_links(facts);
  for (bool blamed = true; blamed && !slow.empty();) {
    const std::map<std::string, EndLinks> ends = links_by_end(facts, slow);
    const auto worst = std::ranges::max_element(ends, {}, [](const auto& end) { return end.second.slow.size(); });
    blamed = worst->second.is_cause();
    if (blamed) findings.push_back(blame_end(facts, worst->first, worst->second, slow));
  }
  const std::map<LinkClass, double> usual = usual_rates(facts);
  std::map<std::pair<int64_t, int64_t>, LinkFacts> pairs;  // each once, at the size at which it is slow first
  for (const LinkFacts& link : slow) pairs.try_emplace({link.from, link.to}, link);
  for (const auto& [ends, link] : pairs) {
    FabricFinding f = finding_about(facts, "link", {link.from, link.to});
    f.condemns = f.hosts.size() == 1;  // of two hosts, nobody knows which
    f.problem = "the link between " + rank_on_host(facts, link.from) + " and " + rank_on_host(facts, link.to) + " has " +
                rate_words(link, usual.at(class_of(facts, link)));
    f.remedy = "look at the cables, ports and switches between them, or start without one of them";
    findings.push_back(f);
  }
}

void judge_sums(const FabricFacts& facts, FabricFindings& findings) {
  std::map<std::pair<std::string, int64_t>, std::vector<GroupFacts>> kinds;
  for (const GroupFacts& group : facts.sums) kinds[{group.axis, group.bytes}].push_back(group);
  for (const auto& [kind, groups] : kinds) {
    std::vector<double> rates;
    for (const GroupFacts& group : groups) rates.push_back(group.rate);
    const double usual = upper_median(rates);
    for (const GroupFacts& group : groups) {
      if (groups.size() < kFewGroups || group.rate >= kSlow * usual) continue;
      FabricFinding f = finding_about(facts, "all_reduce", {group.first});
      f.problem = "the " + group.axis + " group of " + rank_on_host(facts, group.first) + " and " + std::to_string(group.size - 1) +
                  " others sums " + human_bytes(static_cast<double>(group.bytes)) + " at " + human_si(group.rate) +
                  "B/s, the median group at " + human_si(usual) + "B/s";
      f.remedy = "compare with `trireme bench fabric`, and look at the network of its hosts";
      findings.push_back(f);
    }
  }
}

}  // namespace trireme
