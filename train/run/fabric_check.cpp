#include "train/run/fabric_check.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/number_format.h"
#include "base/text_stream.h"
#include "parallel/host_collectives.h"
#include "train/run/bus_rates.h"
#include "train/run/fabric_gather.h"
#include "train/run/link_trial.h"
#include "train/run/machine_trial.h"
#include "train/run/peak_rate.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

constexpr int64_t kSmallestBucket = 64 << 10, kLargestBucket = 256 << 20;
constexpr double kLargeRound = 1;  // seconds of a round of the large messages
constexpr size_t kMostTriedAgain = 16;
constexpr int kTriesAgain = 2;

MachineFacts try_machine(const FabricPlace& place, const FabricOrders& orders, const std::string& directory) {
  Device& device = place.device;
  MachineFacts facts;
  facts.host = host_name();
  facts.kind = name_of_device(device) + ", " + device.cpu().bf16_path() + ", " + std::to_string(device.threads()) + " threads";
  facts.gpu = device.place() == Place::cuda;
  facts.shares_cores = place.world.core_sharers() > 1;
  try_disk(directory, place.world.local_rank() == 0 ? orders.disk : 0, facts);
  note_software(facts);
  largest(place.all, 0);  // all compute at the same time
  try_products(device, orders.products, facts);
  largest(place.all, 0);
  try_copies(device, orders.copies, facts);
  try_memory(device, orders.memory, facts);
  return facts;
}

std::vector<GroupFacts> try_sums(const FabricPlace& place, const FabricOrders& orders, const Tally& traffic) {
  std::vector<GroupFacts> mine;
  for (const Comm& axis : place.mesh.axes()) {
    // Stages have buckets of their own: the largest one is measured on all ranks.
    const int64_t bucket = std::min(kLargestBucket, largest(place.all, bucket_bytes(traffic, axis.axis(), axis.size())));
    const std::vector<int64_t> sizes = bucket >= kSmallestBucket ? std::vector{bucket} : orders.sums;
    if (axis.size() == 1) continue;
    BusTrial trial(place.all, place.device, *std::ranges::max_element(sizes));
    for (const int64_t bytes : sizes) {
      const double rate = trial.own_rate(axis, BusOp::all_reduce, bytes, orders.for_sums);
      if (axis.rank() == 0)
        mine.push_back({.axis = axis.axis(), .first = axis.ranks().first, .size = axis.size(), .bytes = bytes, .rate = rate});
    }
  }
  return mine;
}

std::vector<LinkFacts> try_links(LinkTrial& trial, const FabricOrders& orders) {
  std::vector<LinkFacts> mine;
  for (const int64_t most : orders.links) {
    const int64_t bytes = mine.empty() && most == orders.links.front() ? most : trial.bytes_for(mine, most, kLargeRound);
    if (bytes < most && bytes <= orders.links.front()) break;
    std::ranges::move(trial.all_pairs(bytes, orders.for_links, mine), std::back_inserter(mine));
  }
  return mine;
}

// Slow ranks and links once more, while all others wait; the better rate counts. Other programs can only lower a rate.
void try_again(const FabricPlace& place, const FabricOrders& orders, LinkTrial& links, FabricFacts& facts, MachineFacts& mine) {
  std::string asked;
  const std::vector<int64_t> slow = slow_ranks(facts);
  for (size_t i = 0; i < slow.size() && i < kMostTriedAgain; ++i) asked += std::to_string(slow[i]) + ' ';
  TextReader in(broadcast(place.all, asked));
  for (int64_t rank = 0; in >> rank;) {
    if (place.all.rank() == rank) {
      MachineFacts once = mine;
      try_products(place.device, orders.products / 2, once), try_copies(place.device, orders.copies, once);
      mine.products_checked += once.products_checked;
      mine.products_differ += once.products_differ + (once.product_bits == mine.product_bits ? 0 : 1);
      if (once.products > mine.products) mine.products = once.products, mine.products_spread = once.products_spread;
      if (once.copies > mine.copies) mine.copies = once.copies, mine.copies_spread = once.copies_spread;
    }
    largest(place.all, 0);
  }
  std::vector<LinkFacts> again = slow_links(facts);
  if (again.size() > kMostTriedAgain) again.resize(kMostTriedAgain);
  for (LinkFacts& link : again) link.rate = sound_rate(facts, link);
  for (const LinkFacts& link : links.again(broadcast_facts(place.all, again)))
    for (LinkFacts& known : facts.links)
      if (known.from == link.from && known.to == link.to && known.bytes == link.bytes) known.rate = std::max(known.rate, link.rate);
}

void keep_clocks(const std::vector<MachineFacts>& clocks, std::vector<MachineFacts>& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r)
    ranks[r].clock_ahead = clocks[r].clock_ahead, ranks[r].clock_margin = clocks[r].clock_margin;
}

// Sends all ranks what they need: the other words of the findings stay on rank 0.
void agree_on_verdict(const Comm& all, FabricReport& report) {
  FabricFinding words{.check = "", .ranks = {}, .hosts = condemned_hosts(report.findings), .problem = {}, .remedy = {}};
  for (const FabricFinding& finding : report.findings) {
    if (!finding.condemns) continue;
    words.problem += (words.problem.empty() ? "" : "\n") + describe(finding);
    if (words.ranks.empty()) words.ranks = {finding.ranks.front()};
  }
  const FabricFinding agreed = broadcast_facts(all, std::vector{words}).front();
  report.condemned = agreed.hosts, report.problems = agreed.problem;
  report.condemned_rank = agreed.ranks.empty() ? -1 : agreed.ranks.front();
}

}  // namespace

int64_t bucket_bytes(const Tally& traffic, const std::string& axis, int64_t ranks) {
  double most = 0;
  for (const char* op : {"all_reduce", "reduce_scatter", "all_gather"}) {
    const auto found = traffic.find(op + (" " + axis));
    if (found == traffic.end() || found->second.calls == 0 || ranks < 2) continue;
    const double sent = found->second.bytes / static_cast<double>(found->second.calls);
    const double shares = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    most = std::max(most, sent / shares / (op == std::string("all_reduce") ? 2 : 1));
  }
  return std::llround(most);
}

FabricReport check_fabric(const FabricPlace& place, const FabricOrders& orders) {
  const auto begin = Clock::now();
  const Comm& all = place.all;
  FabricReport report;
  FabricFacts& facts = report.facts;
  facts.directory = place.config != nullptr ? place.config->train.runs : RunConfig().train.runs;
  Tally traffic;
  if (place.config != nullptr) {
    facts.disk_need = 2 * static_cast<double>(checkpoint_size(*place.config, all.size()).bytes);
    traffic = make_plan(*place.config, Mesh(all.rank(), all.size(), place.config->parallel)).traffic;
  }
  MachineFacts mine = try_machine(place, orders, facts.directory);
  LinkTrial links(all);
  std::vector<MachineFacts> clocks(static_cast<size_t>(all.size()));
  links.compare_clocks(clocks);
  facts.links = gather_facts(all, try_links(links, orders));
  facts.sums = gather_facts(all, try_sums(place, orders, traffic));
  facts.ranks = gather_facts(all, std::vector{mine});
  for (int i = 0; i < kTriesAgain; ++i) {
    try_again(place, orders, links, facts, mine);
    facts.ranks = gather_facts(all, std::vector{mine});
  }
  if (all.rank() == 0) {
    keep_clocks(clocks, facts.ranks);
    report.findings = judge_fabric(facts);
  }
  agree_on_verdict(all, report);
  report.seconds = seconds_since(begin);
  return report;
}

std::string summary_of(const FabricReport& report) {
  std::vector<std::string> hosts;
  for (const MachineFacts& m : report.facts.ranks)
    if (std::ranges::find(hosts, m.host) == hosts.end()) hosts.push_back(m.host);
  const auto count = [](size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
  std::string unfit;
  for (const std::string& host : report.condemned) unfit += (unfit.empty() ? "" : ", ") + host;
  const std::string verdict = !unfit.empty()            ? ": not fit: " + unfit
                              : report.findings.empty() ? ": fit"
                                                        : ": fit, with " + count(report.findings.size(), "warning");
  return count(report.facts.ranks.size(), "rank") + " on " + count(hosts.size(), "host") + verdict + ", checked in " +
         human_seconds(report.seconds);
}

std::vector<std::string> require_fit_machines(const FabricPlace& place) {
  const int64_t taken = place.device.ledger().bytes() - place.device.workspace_bytes();
  require(taken <= 0, text("machines are checked before a run takes memory: it has ", taken, " bytes"));
  const FabricReport report = check_fabric(place, FabricOrders::brief());
  if (!report.condemned.empty()) {
    std::string hosts;
    for (const std::string& host : report.condemned) hosts += (hosts.empty() ? "" : ", ") + host;
    throw MachineError("not fit for this run: " + hosts + "\n" + report.problems, report.condemned.front(), report.condemned_rank);
  }
  std::vector<std::string> lines;
  if (place.all.rank() > 0) return lines;
  for (const FabricFinding& finding : report.findings) lines.push_back("warning: " + describe(finding));
  lines.push_back("machines: " + summary_of(report));
  return lines;
}

}  // namespace trireme
