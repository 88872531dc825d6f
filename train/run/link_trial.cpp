#include "train/run/link_trial.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/median.h"
#include "parallel/collectives.h"
#include "parallel/host_collectives.h"
#include "train/health/fabric_findings.h"
#include "train/health/tournament.h"

namespace trireme {
namespace {

constexpr int kPings = 3, kPingsAlone = 5;
constexpr double kForLinkAlone = 0.5;  // seconds
constexpr int kClockTrials = 3;
constexpr size_t kRoundsAtOnce = 8;   // between two looks at the clock
constexpr double kLongestPing = 0.5;  // seconds of a message there and back: a slower link is not measured at this size
constexpr int64_t kSmallest = 1 << 20;
constexpr Channel kPingChannel = Channel::tied;

Tensor bytes_as_tensor(void* memory, int64_t bytes) { return {memory, Dtype::f32, Place::cpu, {bytes / 4}}; }

}  // namespace

LinkTrial::LinkTrial(const Comm& all) : all_(all), device_(Place::cpu, read_cpu_facts()) {}

Tensor LinkTrial::message(int64_t bytes) {
  if (!memory_ || memory_->bytes() < bytes) memory_.emplace(device_, bytes, "messages to measure");
  return bytes_as_tensor(memory_->data(), bytes);
}

// Seconds of the fastest message there and back. The first one, which maps memory, does not count.
double LinkTrial::ping_pong(int64_t bytes, int64_t peer, int repeats) {
  const Tensor x = message(bytes);
  Stream& stream = device_.compute();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = Clock::now();
    if (all_.rank() > peer) run(all_, stream, Receive{.x = x, .peer = peer, .channel = kPingChannel});
    run(all_, stream, Send{.x = x, .peer = peer, .channel = kPingChannel});
    if (all_.rank() < peer) run(all_, stream, Receive{.x = x, .peer = peer, .channel = kPingChannel});
    if (i > 0) best = std::min(best, seconds_since(begin));
  }
  return best;
}

// The number of the lower rank of the pair.
int64_t LinkTrial::agree_repeats(int64_t peer, int64_t repeats) {
  const Tensor x = bytes_as_tensor(&repeats, sizeof repeats);
  if (all_.rank() < peer)
    run(all_, device_.compute(), Send{.x = x, .peer = peer, .channel = kPingChannel});
  else
    run(all_, device_.compute(), Receive{.x = x, .peer = peer, .channel = kPingChannel});
  return repeats;
}

std::vector<LinkFacts> LinkTrial::all_pairs(int64_t bytes, double seconds, const std::vector<LinkFacts>& known) {
  const auto too_slow = [&](int64_t peer) {
    const auto link = std::ranges::find(known, peer, &LinkFacts::to);
    return link != known.end() && 2 * static_cast<double>(bytes) / link->rate > kLongestPing;
  };
  std::vector<LinkFacts> found;
  const auto begin = Clock::now();
  const std::vector<int64_t> rounds = spread_rounds(all_.size());
  for (size_t i = 0; i < rounds.size(); ++i) {
    if (i % kRoundsAtOnce == 0 && i > 0 && largest(all_, std::llround(1e3 * seconds_since(begin))) > std::llround(1e3 * seconds))
      break;
    const int64_t peer = opponent(all_.rank(), all_.size(), rounds[i]);
    const int64_t repeats = peer < 0 ? 0 : agree_repeats(peer, too_slow(peer) ? 0 : kPings);
    if (repeats == 0) continue;
    const double best = ping_pong(bytes, peer, static_cast<int>(repeats));
    if (all_.rank() < peer)
      found.push_back({.from = all_.rank(), .to = peer, .bytes = bytes, .rate = 2 * static_cast<double>(bytes) / best});
  }
  return found;
}

// The lower end decides how long.
double LinkTrial::best_rate(const LinkFacts& wanted) {
  const bool lower = all_.rank() == wanted.from;
  const int64_t peer = lower ? wanted.to : wanted.from;
  double rate = 0;
  const auto begin = Clock::now();
  const auto more = [&] { return rate < wanted.rate && seconds_since(begin) < kForLinkAlone; };
  while (agree_repeats(peer, more() ? kPingsAlone : 0) > 0)
    rate = std::max(rate, 2 * static_cast<double>(wanted.bytes) / ping_pong(wanted.bytes, peer, kPingsAlone));
  return lower ? rate : 0;
}

std::vector<LinkFacts> LinkTrial::again(const std::vector<LinkFacts>& wanted) {
  std::vector<LinkFacts> measured = wanted;
  for (LinkFacts& link : measured) {
    const bool mine = all_.rank() == link.from || all_.rank() == link.to;
    link.rate = sum(all_, {mine ? best_rate(link) : 0}).front();
  }
  return measured;
}

void LinkTrial::compare_clocks(std::vector<MachineFacts>& ranks) {
  Stream& stream = device_.compute();
  double theirs = 0;
  const Tensor x = bytes_as_tensor(&theirs, sizeof theirs);
  const auto send = [&](int64_t peer) { run(all_, stream, Send{.x = x, .peer = peer, .channel = kPingChannel}); };
  const auto receive = [&](int64_t peer) { run(all_, stream, Receive{.x = x, .peer = peer, .channel = kPingChannel}); };
  for (int64_t rank = 1; rank < all_.size(); ++rank)
    for (int i = 0; i < kClockTrials; ++i) {
      if (all_.rank() == rank) receive(0), theirs = unix_seconds(), send(0);
      if (all_.rank() > 0) continue;
      const double before = unix_seconds();
      send(rank), receive(rank);
      const double after = unix_seconds();
      MachineFacts& facts = ranks[static_cast<size_t>(rank)];
      if (i > 0 && (after - before) / 2 >= facts.clock_margin) continue;
      facts.clock_margin = (after - before) / 2, facts.clock_ahead = theirs - (before + after) / 2;
    }
}

int64_t LinkTrial::bytes_for(const std::vector<LinkFacts>& measured, int64_t most, double seconds) const {
  std::vector<double> rates;
  for (const LinkFacts& link : measured) rates.push_back(link.rate);
  // There and back, once to map memory and some times to measure. The least of all ranks is the largest of the negatives.
  const double fits = upper_median(rates) * seconds / (2 * (1 + kPings));
  const int64_t least = -largest(all_, rates.empty() ? -most : -std::llround(std::min(fits, 1e12)));
  int64_t bytes = most;
  while (bytes > least && bytes > kSmallest) bytes /= 2;
  return bytes;
}

}  // namespace trireme
