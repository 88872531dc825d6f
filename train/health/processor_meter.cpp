#include "train/health/processor_meter.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

constexpr double kComputes = 0.1;  // processor time per second that counts, from which a rank computes
constexpr double kLate = 0.25;     // part of the limit over which that rate is taken

bool waits_for_others(const RankReport& report, int32_t thread) {
  return std::ranges::any_of(report.entries, [&](const JournalEntry& e) { return e.inside != 0 && e.thread == thread; }) ||
         (report.waits_for_gpu && thread == report.process);
}

// Seconds of the span in which the thread was ready to run but had no core.
double unserved(const ThreadTimes& now, const ThreadTimes& before, double seconds) {
  // The kernel adds a wait for a core when it ends. One that lasts shows in the state.
  const double waits = now.state == 'R' ? seconds - (now.used - before.used) : now.unserved - before.unserved;
  return std::clamp(waits, 0.0, seconds);
}

}  // namespace

void ProcessorMeter::restart() { ranks_.clear(); }

void ProcessorMeter::measure(const Span& span, std::vector<RankReport>& ranks) {
  for (RankReport& report : ranks) {
    add(ranks_[report.rank], span, report, read_(report.process));
    report.share = ranks_[report.rank].share;
  }
}

void ProcessorMeter::add(Rank& rank, const Span& span, const RankReport& report, const std::vector<ThreadTimes>& threads) {
  const bool begins = rank.last.empty();
  double without = 0, used = 0;
  for (const ThreadTimes& now : threads) {
    if (now.background) continue;
    rank.first.try_emplace(now.thread, begins ? now : ThreadTimes{});
    const auto [before, fresh] = rank.last.try_emplace(now.thread, begins ? now : ThreadTimes{});
    // A thread that waits for other ranks has nothing to compute: it is enough that it could look.
    const bool looks = waits_for_others(report, now.thread);
    if (!looks || (now.turns > 0 && now.turns == before->second.turns))
      without += begins ? 0 : unserved(now, before->second, span.seconds);
    if (!looks) {
      used += now.used - before->second.used;
      rank.share.used = std::max(rank.share.used, now.used - rank.first.at(now.thread).used);
    }
    before->second = now;
  }
  without = std::min(without, span.seconds);
  const double counted = std::min(span.counted, span.seconds - without);
  rank.share.counted += counted;
  rank.share.unserved += without;
  if (counted <= 0) return;
  const double weight = 1 - std::exp(-counted / (kLate * span.limit));
  rank.rate += weight * (std::min(1.0, used / counted) - rank.rate);
  rank.share.computes = rank.rate >= kComputes;
}

}  // namespace trireme
