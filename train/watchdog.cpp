#include "train/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "train/stack.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRound{100};
constexpr size_t kSteps = 200;    // whose times are remembered
constexpr size_t kEnough = 5;     // to know what a step takes
constexpr double kPaused = 1;     // seconds that a round may take before the whole process must have been stopped
constexpr double kForOthers = 2;  // seconds more that ranks wait which need not speak; and for the culprit's stack

double since(Clock::time_point moment) { return std::chrono::duration<double>(Clock::now() - moment).count(); }

bool ended(const RankReport& r) { return r.state == 'Z' || r.state == 'X'; }
bool speechless(const RankReport& r) { return ended(r) || r.state == 'T' || r.state == 't'; }

}  // namespace

Watchdog::Watchdog(Journal& journal, int64_t rank, Orders orders) : journal_(journal), rank_(rank), orders_(std::move(orders)) {
  if (orders_.patience <= 0) return;
  watch_stacks();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::took(double seconds) {
  const std::lock_guard lock(mutex_);
  if (steps_.size() < kSteps)
    steps_.push_back(seconds);
  else
    steps_[next_++ % kSteps] = seconds;
  regular_ = steps_.size() >= kEnough;
}

void Watchdog::last_step_done() {
  const std::lock_guard lock(mutex_);
  regular_ = false;
}

bool Watchdog::sleep() {
  std::unique_lock lock(mutex_);
  return !ended_.wait_for(lock, kRound, [&] { return ending_; });
}

double Watchdog::limit() {
  const std::lock_guard lock(mutex_);
  if (!regular_) return orders_.at_start * orders_.patience;
  std::vector<double> sorted = steps_;
  std::sort(sorted.begin(), sorted.end());
  return std::max(orders_.patience, 3 * sorted[sorted.size() * 99 / 100]);
}

void Watchdog::watch() {
  int64_t moves = -1;
  Clock::time_point moved = Clock::now(), round = moved;
  bool warned = false;
  while (sleep()) {
    if (journal_.accused() >= 0) return judge_all();
    const bool paused = since(round) > kPaused;
    round = Clock::now();
    if (const int64_t now = journal_.moves(); now != moves || paused) {
      moves = now, moved = round, warned = false;
      continue;
    }
    if (const double silent = since(moved), limit = this->limit(); silent >= limit && decide(silent, limit, warned))
      return judge_all();
  }
}

// Whether this rank ends it all now.
bool Watchdog::decide(double silent, double limit, bool& warned) {
  const std::vector<RankReport> ranks = journal_.look();
  const auto speaker = std::find_if(ranks.begin(), ranks.end(), [](const RankReport& r) { return !speechless(r); });
  const bool mine = speaker == ranks.end() || speaker->rank == rank_;
  const auto at_disk = [](const RankReport& r) { return r.doing != "training"; };
  if (std::none_of(ranks.begin(), ranks.end(), speechless) &&
      (!orders_.one_node || std::any_of(ranks.begin(), ranks.end(), at_disk))) {
    if (mine && !std::exchange(warned, true) && orders_.warn) orders_.warn(judge(ranks).line);
    limit = std::max(limit, orders_.for_disks * orders_.patience);
  }
  return silent >= limit + (mine ? 0 : kForOthers);
}

// This rank speaks, or one has spoken. Where that, too, has to wait, the end comes without it.
void Watchdog::judge_all() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    end_at_once(ExitCode::hang);
  }).detach();
  const bool speaks = journal_.accused() < 0;
  const std::vector<RankReport> ranks = journal_.look();
  const Verdict verdict = judge(ranks);
  const int64_t culprit = speaks ? verdict.rank : journal_.accused();
  if (speaks) journal_.accuse(culprit);
  const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankReport& r) { return r.rank == culprit; });
  if (culprit == rank_) {
    std::string stack = stack_of(getpid());  // of the first thread, and of the one that waits for others
    if (verdict.rank == rank_ && verdict.thread > 0 && verdict.thread != getpid()) stack += " | " + stack_of(verdict.thread);
    journal_.confess(stack.empty() ? "no answer" : stack);
  }
  const bool can_answer = at != ranks.end() && !speechless(*at);
  for (const auto begin = Clock::now(); can_answer && journal_.confession(culprit).empty() && since(begin) < kForOthers;)
    std::this_thread::sleep_for(kRound / 5);
  if (speaks) {
    if (orders_.tell) orders_.tell(verdict, journal_.confession(culprit));
  } else {  // the one that speaks ends first: its code is the run's
    std::this_thread::sleep_for(std::chrono::duration<double>(kForOthers / 2));
    if (at != ranks.end() && culprit != rank_ && !ended(*at))
      kill(at->process, SIGKILL);  // one that is stopped ends by nothing else
  }
  end_at_once(ExitCode::hang);
}

}  // namespace trireme
