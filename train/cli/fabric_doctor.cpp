#include "train/cli/fabric_doctor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/median.h"
#include "base/number_format.h"
#include "train/cli/bench_table.h"
#include "train/cli/fabric_ranks.h"
#include "train/cli/json_output.h"
#include "train/run/fabric_check.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

void fabric_line(const std::string& what, const std::string& usual, const std::string& worst) {
  say(row("%-24s %-18s %s", what.c_str(), usual.c_str(), worst.c_str()));
}

std::string of_rank(const FabricFacts& facts, size_t rank) {
  return "rank " + std::to_string(rank) + " on " + facts.ranks[rank].host;
}

// The median of a field over the ranks, and the lowest.
void say_rates(const FabricFacts& facts, const char* what, double MachineFacts::*field, const char* unit) {
  std::vector<double> rates;
  for (const MachineFacts& m : facts.ranks)
    if (m.*field > 0) rates.push_back(m.*field);
  if (rates.empty()) return;
  size_t worst = 0;
  for (size_t r = 0; r < facts.ranks.size(); ++r)
    if (facts.ranks[r].*field > 0 && (facts.ranks[worst].*field <= 0 || facts.ranks[r].*field < facts.ranks[worst].*field))
      worst = r;
  fabric_line(what, human_si(upper_median(rates)) + unit,
              human_si(facts.ranks[worst].*field) + unit + ", " + of_rank(facts, worst));
}

void say_links(const FabricFacts& facts) {
  std::map<int64_t, std::vector<LinkFacts>> by_size;
  for (const LinkFacts& link : facts.links) by_size[link.bytes].push_back(link);
  for (const auto& [bytes, links] : by_size) {
    std::vector<double> rates;
    for (const LinkFacts& link : links) rates.push_back(link.rate);
    const LinkFacts& worst = *std::ranges::min_element(links, {}, &LinkFacts::rate);
    fabric_line("links, " + human_bytes(static_cast<double>(bytes)), human_si(upper_median(rates)) + "B/s",
                human_si(worst.rate) + "B/s, ranks " + std::to_string(worst.from) + " and " + std::to_string(worst.to) + ", of " +
                    std::to_string(links.size()) + " links");
  }
}

void say_sums(const FabricFacts& facts) {
  std::map<std::pair<std::string, int64_t>, std::vector<GroupFacts>> kinds;
  for (const GroupFacts& group : facts.sums) kinds[{group.axis, group.bytes}].push_back(group);
  for (const auto& [kind, groups] : kinds) {
    std::vector<double> rates;
    for (const GroupFacts& group : groups) rates.push_back(group.rate);
    const GroupFacts& worst = *std::ranges::min_element(groups, {}, &GroupFacts::rate);
    fabric_line("all_reduce " + kind.first + ", " + human_bytes(static_cast<double>(kind.second)),
                human_si(upper_median(rates)) + "B/s",
                human_si(worst.rate) + "B/s, from " + of_rank(facts, static_cast<size_t>(worst.first)));
  }
}

void say_report(const FabricReport& report) {
  const FabricFacts& facts = report.facts;
  fabric_line("check", "median", "worst");
  say_rates(facts, "products", &MachineFacts::products, "FLOP/s");
  say_rates(facts, "copies", &MachineFacts::copies, "B/s");
  say_rates(facts, "disk writes", &MachineFacts::disk_rate, "B/s");
  say_rates(facts, "disk free", &MachineFacts::disk_free, "B");
  int64_t memory = 0, products = 0;
  for (const MachineFacts& m : facts.ranks) memory += m.memory_bytes, products += m.products_checked;
  fabric_line("memory", human_bytes(static_cast<double>(memory)), "written and read again, on all ranks together");
  fabric_line("equal products", std::to_string(products), "of which each has its bits compared");
  const auto skew = [](const MachineFacts& m) { return std::abs(m.clock_ahead); };
  const auto late = std::ranges::max_element(facts.ranks, {}, skew);
  if (facts.ranks.size() > 1)
    fabric_line("clock, from rank 0's", "",
                human_seconds(skew(*late)) + ", " + of_rank(facts, static_cast<size_t>(late - facts.ranks.begin())));
  say_links(facts);
  say_sums(facts);
  for (const FabricFinding& finding : report.findings) say((finding.condemns ? "not fit: " : "warning: ") + describe(finding));
  say(summary_of(report));
}

template <class Facts>
Json list_of(const std::vector<Facts>& facts, bool numbered) {
  Json list = Json::array();
  for (const Facts& each : facts) {
    Json item = json_of_facts(each);
    if (numbered) item["rank"] = list.size();
    list.push_back(item);
  }
  return list;
}

// At most so many, the slowest first.
std::vector<LinkFacts> slowest_links(std::vector<LinkFacts> links) {
  constexpr size_t kMostLinks = 4096;
  std::ranges::stable_sort(links, {}, &LinkFacts::rate);
  if (links.size() > kMostLinks) links.resize(kMostLinks);
  return links;
}

Json json_of(const FabricReport& report) {
  return {{"fit", report.condemned.empty()},
          {"seconds", report.seconds},
          {"condemned_hosts", report.condemned},
          {"findings", list_of(report.findings, false)},
          {"ranks", list_of(report.facts.ranks, true)},
          {"links", list_of(slowest_links(report.facts.links), false)},
          {"all_reduce", list_of(report.facts.sums, false)},
          {"directory", report.facts.directory},
          {"disk_need_bytes", report.facts.disk_need}};
}

}  // namespace

ExitCode run_fabric_doctor(const FabricDoctorOptions& options) {
  return on_fabric_ranks(options.config, options.set, [&](FabricRanks& ranks) {
    const bool speaks = ranks.world.rank() == 0;
    JsonOutput json(speaks ? options.json : "");
    const FabricReport report =
        check_fabric({.world = ranks.world, .all = ranks.all, .mesh = ranks.mesh, .device = ranks.device, .config = ranks.config},
                     FabricOrders::full());
    if (speaks) say_report(report), json.write(json_of(report));
    return report.condemned.empty() ? ExitCode::done : ExitCode::machine;
  });
}

}  // namespace trireme
