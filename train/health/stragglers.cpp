#include "train/health/stragglers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/median.h"
#include "base/number_format.h"

namespace trireme {
namespace {

constexpr double kMostOfSteps = 0.75;   // of a window, in which a straggler is slow
constexpr double kSlowLink = 2;         // times the usual seconds per byte
constexpr double kLinkExcess = 0.5e-3;  // seconds of an exchange; less is noise
constexpr size_t kLinksToCompare = 3;
constexpr size_t kMostSuspects = 8;  // whose steps are compared one by one
constexpr std::array<const char*, kWorkParts> kPartNames{"forward", "backward", "optimizer", "data", "other work"};

// A value of each peer of a rank.
template <class Value>
std::vector<double> of_peers(std::span<const RankWork> ranks, size_t rank, Value value) {
  std::vector<double> found;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (i != rank && ranks[i].stage == ranks[rank].stage) found.push_back(value(ranks[i], i));
  return found;
}

// The median of the rank's peers in each step.
std::array<double, RankWork::kSteps> usual_steps(std::span<const RankWork> ranks, size_t rank) {
  std::array<double, RankWork::kSteps> usual{};
  for (size_t s = 0; s < RankWork::kSteps; ++s)
    usual[s] = median(of_peers(ranks, rank, [s](const RankWork& r, size_t) { return static_cast<double>(r.busy[s]); }));
  return usual;
}

bool slow_in_most_steps(std::span<const RankWork> ranks, size_t rank, double ratio) {
  const std::array<double, RankWork::kSteps> usual = usual_steps(ranks, rank);
  const double least = 1 + (ratio - 1) / 2;
  size_t slow = 0;
  for (size_t s = 0; s < RankWork::kSteps; ++s) slow += static_cast<double>(ranks[rank].busy[s]) > least * usual[s] ? 1 : 0;
  return static_cast<double>(slow) >= kMostOfSteps * static_cast<double>(RankWork::kSteps);
}

double without_core(const RankWork& r) { return r.seconds > 0 ? std::max(0.0, 1 - static_cast<double>(r.on_core / r.seconds)) : 0; }

// How much longer an empty loop took on the rank's cores than on those of its peers.
double core_excess(std::span<const RankWork> ranks, size_t rank) {
  const auto rate = [](const RankWork& r, size_t) { return static_cast<double>(r.machine.core_rate); };
  const double own = rate(ranks[rank], rank), usual = median(of_peers(ranks, rank, rate));
  return own > 0 && usual > 0 ? usual / own - 1 : 0;
}

std::string whole_percent(double fraction) { return std::to_string(std::llround(100 * fraction)) + " %"; }

// The part whose time exceeds the peers' most.
WorkPart slowest_part(std::span<const RankWork> ranks, size_t rank) {
  std::array<double, kWorkParts> excess{};
  for (size_t p = 0; p < kWorkParts; ++p) {
    const auto seconds = [p](const RankWork& r, size_t) { return static_cast<double>(r.parts[p]); };
    excess[p] = seconds(ranks[rank], rank) - median(of_peers(ranks, rank, seconds));
  }
  return static_cast<WorkPart>(std::ranges::max_element(excess) - excess.begin());
}

// Counters of the slow rank's machine that differ from those of its peers, in words; "" for none.
std::string reasons(std::span<const RankWork> ranks, size_t rank, double excess) {
  const RankWork& slow = ranks[rank];
  const auto usual = [&](auto value) {
    return median(of_peers(ranks, rank, [&](const RankWork& r, size_t) { return static_cast<double>(value(r)); }));
  };
  std::vector<std::string> found;
  const double waiting = without_core(slow), others = usual(without_core);
  if (slow.shares_cores == 0 && waiting - others > excess / 4)
    found.push_back("it had no core for " + whole_percent(waiting) + " of that time");
  const MachineCounters& m = slow.machine;
  if (static_cast<double>(m.stolen) - usual([](const RankWork& r) { return r.machine.stolen; }) > excess / 4)
    found.push_back("its virtual machine's host took " + whole_percent(static_cast<double>(m.stolen)) + " of its processor time");
  const double clock = usual([](const RankWork& r) { return r.machine.clock_ghz; });
  const double core = core_excess(ranks, rank);
  if (m.clock_ghz > 0 && static_cast<double>(m.clock_ghz) < clock * (1 - excess / 4))
    found.push_back("its cores run at " + fixed(static_cast<double>(m.clock_ghz), 2) + " GHz, others at " + fixed(clock, 2));
  else if (core > excess / 2)
    found.push_back("an empty loop takes " + whole_percent(core) +
                    " longer on its cores: others use them too, such as another virtual machine");
  if (static_cast<double>(m.throttles) > usual([](const RankWork& r) { return r.machine.throttles; }))
    found.push_back("its processor was slowed " + std::to_string(std::llround(m.throttles)) + " times because it was too hot");
  if (static_cast<double>(m.disk_faults) > 32 + 2 * usual([](const RankWork& r) { return r.machine.disk_faults; }))
    found.push_back(std::to_string(std::llround(m.disk_faults)) + " page faults read its disk: memory is short");
  std::string words;
  for (const std::string& reason : found) words += (words.empty() ? ": " : ", ") + reason;
  return words;
}

std::string name_of(std::span<const RankWork> ranks, int64_t rank) {
  return "rank " + std::to_string(rank) + " (" + ranks[static_cast<size_t>(rank)].host_name() + ")";
}

std::string words_on(std::span<const RankWork> ranks, size_t rank, double ratio, int64_t peers) {
  const WorkPart part = slowest_part(ranks, rank);
  const std::string longer =
      whole_percent(ratio - 1) + " longer than its " + (peers == 1 ? "peer" : std::to_string(peers) + " peers");
  const std::string who = name_of(ranks, static_cast<int64_t>(rank));
  if (part == WorkPart::data) return who + " works " + longer + ", as it waits for its data: look at the disk of its shards";
  return who + " computes " + longer + ", " + kPartNames[static_cast<size_t>(part)] + " most" + reasons(ranks, rank, ratio - 1);
}

// The axis of a link, and whether it carries messages.
using LinkKind = std::pair<std::array<char, 8>, int32_t>;

std::string slow_link_words(std::span<const RankWork> ranks, const LinkTime& link, double usual) {
  const std::string between = link.message == 1 ? "the link from " : "the links between ";
  return between + name_of(ranks, link.from) + (link.message == 1 ? " to " : " and ") + name_of(ranks, link.to) + ", " +
         link.along.data() + ": " + fixed(1e-6 / link.per_byte(), 1) + " MB/s at best, usual are " + fixed(1e-6 / usual, 1) +
         " MB/s";
}

// The fastest exchange of each link, as any of its ranks saw it.
std::vector<LinkTime> fastest_of(std::span<const RankWork> ranks) {
  std::map<std::tuple<std::array<char, 8>, int32_t, int32_t, int32_t>, LinkTime> links;
  for (const RankWork& r : ranks) {
    for (size_t i = 0; i < static_cast<size_t>(r.links); ++i) {
      const LinkTime& link = r.link[i];
      LinkTime& known = links.try_emplace({link.along, link.message, link.from, link.to}, link).first->second;
      if (link.per_byte() < known.per_byte()) known = link;
    }
  }
  std::vector<LinkTime> found;
  for (const auto& [key, link] : links) found.push_back(link);
  return found;
}

}  // namespace

std::vector<double> median_work(std::span<const RankWork> ranks) {
  std::vector<double> medians;
  for (const RankWork& r : ranks) medians.push_back(median({r.busy.begin(), r.busy.end()}));
  return medians;
}

std::vector<double> relative_work(std::span<const RankWork> ranks) {
  const std::vector<double> work = median_work(ranks);
  std::map<int64_t, std::vector<double>> stages;
  for (size_t i = 0; i < ranks.size(); ++i) stages[ranks[i].stage].push_back(work[i]);
  for (auto& [stage, sorted] : stages) std::ranges::sort(sorted);
  std::vector<double> ratios(ranks.size(), 1);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::vector<double>& sorted = stages[ranks[i].stage];
    const size_t own = static_cast<size_t>(std::ranges::lower_bound(sorted, work[i]) - sorted.begin()), peers = sorted.size() - 1;
    const auto other = [&](size_t at) { return sorted[at < own ? at : at + 1]; };
    if (peers == 0) continue;
    const double usual = (other((peers - 1) / 2) + other(peers / 2)) / 2;
    if (usual > 0) ratios[i] = work[i] / usual;
  }
  return ratios;
}

std::optional<Straggler> find_straggler(std::span<const RankWork> ranks, double ratio) {
  const std::vector<double> ratios = relative_work(ranks);
  std::vector<size_t> slow;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ratios[i] > ratio) slow.push_back(i);
  std::ranges::sort(slow, [&](size_t a, size_t b) { return ratios[a] > ratios[b]; });
  if (slow.size() > kMostSuspects) slow.resize(kMostSuspects);
  for (const size_t rank : slow) {
    if (!slow_in_most_steps(ranks, rank, ratio)) continue;
    if (ranks[rank].shares_cores == 1 && core_excess(ranks, rank) > ratios[rank] - 1) continue;  // it had the slow core by chance
    const auto peers = std::ranges::count_if(ranks, [&](const RankWork& r) { return r.stage == ranks[rank].stage; }) - 1;
    return Straggler{.rank = static_cast<int64_t>(rank),
                     .host = ranks[rank].host_name(),
                     .ratio = ratios[rank],
                     .peers = peers,
                     .words = words_on(ranks, rank, ratios[rank], peers)};
  }
  return std::nullopt;
}

std::vector<std::string> slow_links(std::span<const RankWork> ranks) {
  const std::vector<LinkTime> links = fastest_of(ranks);
  std::map<LinkKind, std::vector<double>> times;
  for (const LinkTime& link : links) times[{link.along, link.message}].push_back(link.per_byte());
  std::vector<std::string> lines;
  for (const LinkTime& link : links) {
    const std::vector<double>& of_kind = times[{link.along, link.message}];
    if (of_kind.size() < kLinksToCompare) continue;
    const double usual = median(of_kind), excess = (link.per_byte() - usual) * static_cast<double>(link.bytes);
    if (link.per_byte() > kSlowLink * usual && excess > kLinkExcess) lines.push_back(slow_link_words(ranks, link, usual));
  }
  return lines;
}

}  // namespace trireme
