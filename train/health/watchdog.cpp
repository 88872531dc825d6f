#include "train/health/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "base/clock.h"
#include "train/health/stack.h"
#include "train/health/thread_times.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kRound{100};
constexpr size_t kSteps = 200;                                    // number of durations kept
constexpr size_t kEnough = 5;                                     // durations needed for a limit
constexpr int64_t kNobody = std::numeric_limits<int32_t>::max();  // accused if the culprit is unknown
constexpr auto kNoStack = "-";                                    // the culprit's confession when its stack cannot be read
constexpr double kPaused = 1;      // seconds: a round that takes longer means that the process was stopped or had no core
constexpr double kForOthers = 2;   // seconds: wait for the culprit's stack
constexpr double kForReport = 6;   // seconds: wait for the rank that reports
constexpr double kForCulprit = 1;  // seconds: wait for the culprit to end by itself
// Parts of the limit: the silence after which shares are measured, the time between measurements, and the
// silence after which the machine's load is read. Steps that take their usual time are not silent so long.
constexpr double kFirstLook = 0.2, kBetweenLooks = 0.05, kLoadFirst = 0.5;

}  // namespace

Watchdog::Watchdog(Journal& journal, int64_t rank, Orders orders)
    : journal_(journal), rank_(rank), orders_(std::move(orders)), nodes_(orders_.board) {
  if (orders_.patience <= 0) return;
  watch_stacks();
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() { stop(); }

void Watchdog::took(double seconds) {
  const std::lock_guard lock(mutex_);
  if (steps_.size() < kSteps)
    steps_.push_back(seconds);
  else
    steps_[next_++ % kSteps] = seconds;
  regular_ = steps_.size() >= kEnough;
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::last_step_done() {
  const std::lock_guard lock(mutex_);
  regular_ = false;
  done_ = true;
}

bool Watchdog::steps_are_done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

double Watchdog::longest_step() {
  const std::lock_guard lock(mutex_);
  return limit_of_steps();
}

bool Watchdog::sleep() {
  std::unique_lock lock(mutex_);
  return !ended_.wait_for(lock, kRound, [&] { return ending_; });
}

double Watchdog::limit() {
  const std::lock_guard lock(mutex_);
  return regular_ ? limit_of_steps() : orders_.at_start * orders_.patience;
}

double Watchdog::limit_of_steps() const {
  if (steps_.size() < kEnough) return orders_.patience;
  std::vector<double> sorted = steps_;
  std::sort(sorted.begin(), sorted.end());
  return std::max(orders_.patience, 3 * sorted[sorted.size() * 99 / 100]);
}

void Watchdog::watch() {
  name_watcher_thread();
  int64_t moves = -1;
  double unserved = unserved_here();
  for (auto round = Clock::now(); sleep();) {
    journal_.watchdog_ran();
    if (journal_.accused() >= 0) return judge_all(std::nullopt);
    const double seconds = seconds_since(std::exchange(round, Clock::now()));
    const double before = std::exchange(unserved, unserved_here()), waited = unserved - before;
    if (const int64_t now = journal_.moves(); now != moves) {
      moves = now, silence_ = {};
      meter_.restart(), machine_.forget(), nodes_.take_back();
      continue;
    }
    const double limit = this->limit();
    silence_.lasted += seconds;
    silence_.counted += counts(seconds, waited, limit);
    // Other nodes' reports may be slow to read: that is silence, too, and no pause of this process.
    const auto begin = Clock::now();
    if (const std::optional<Verdict> verdict = look(limit)) return judge_all(verdict);
    const double looked = seconds_since(begin);
    silence_.lasted += looked;
    silence_.counted += std::min(looked, std::max(kPaused, kFirstLook * limit));
    round = Clock::now(), unserved = unserved_here();
  }
}

// Seconds of a round that count as silence. While this process is stopped, others may be, too.
double Watchdog::counts(double round, double unserved, double limit) const {
  if (round <= kPaused) return round;
  const double usual = std::chrono::duration<double>(kRound).count();
  return unserved > round / 2 ? std::min(round, std::max(usual, kFirstLook * limit)) : usual;
}

// Measures what the ranks have of the processors, on one rank of the node. Returns a verdict if this rank
// must end the run now.
std::optional<Verdict> Watchdog::look(double limit) {
  Silence& s = silence_;
  const bool first = s.looked <= 0;
  if (s.counted < (first ? kFirstLook * limit : s.looked + kBetweenLooks * limit)) return std::nullopt;
  s.looked = s.counted;
  std::vector<RankReport> ranks = journal_.look();
  const auto can_speak = [&](const RankReport& r) { return r.rank == rank_ || (r.watched && !stopped_or_gone(r)); };
  if (std::ranges::find_if(ranks, can_speak)->rank != rank_) return std::nullopt;
  // Whoever begins to measure late does not count what it has not seen.
  const double counted = s.measured > 0 ? s.counted - s.measured_counted : std::min(s.counted, kFirstLook * limit);
  meter_.measure({.seconds = s.lasted - s.measured, .counted = counted, .limit = limit}, ranks);
  s.measured = s.lasted, s.measured_counted = s.counted;
  if (s.counted >= kLoadFirst * limit && !machine_.begun()) machine_.begin();
  return s.counted >= limit ? decide(ranks, limit) : std::nullopt;
}

std::optional<Verdict> Watchdog::decide(const std::vector<RankReport>& ranks, double limit) {
  nodes_.exchange(ranks, limit);
  if (!nodes_.leads()) return nodes_.ruled();
  const std::vector<RankReport> all = nodes_.all();
  const bool at_disk = std::ranges::none_of(all, stopped_or_gone) &&
                       std::ranges::any_of(all, [](const RankReport& r) { return r.doing != "training"; });
  // A node without a report may still make progress, for example with a disk.
  if (at_disk || !nodes_.complete()) limit = std::max(limit, orders_.for_disks * orders_.patience);
  Verdict verdict = judge(all);
  const Ruling ruling = rule(verdict, all, limit);
  if (ruling == Ruling::hang && silence_.counted >= limit) {
    nodes_.rule(verdict);
    return verdict;
  }
  const auto held = [&](const RankReport& r) { return r.rank == verdict.rank && !r.share.computes && !lacks_core(r.share); };
  if (!at_disk || std::ranges::none_of(all, held))
    warn(ruling == Ruling::unawaited ? Warning::unawaited : Warning::slow, verdict);
  else if (!std::exchange(silence_.warned_of_disk, true))
    orders_.warn(Warning::disk, finding(verdict));
  return std::nullopt;
}

// Warns at intervals that grow over the run.
void Watchdog::warn(Warning why, const Verdict& verdict) {
  if (warned_ && seconds_since(*warned_) < until_warning_) return;
  until_warning_ = std::max(2 * until_warning_, 2 * silence_.lasted);
  warned_ = Clock::now();
  orders_.warn(why, finding(verdict));
}

Watchdog::Finding Watchdog::finding(const Verdict& verdict) {
  std::set<int32_t> job{getpid(), getppid()};
  for (const RankReport& r : journal_.look()) job.insert(r.process);
  return {.verdict = verdict, .stack = verdict.rank == rank_ ? stack_of(getpid()) : "", .machine = machine_.describe(job)};
}

// Returns true while the node's rank that reports the verdict exists.
bool Watchdog::reports() const {
  const std::vector<RankReport> ranks = journal_.look();
  return std::ranges::any_of(
      ranks, [&, speaker = journal_.accuser()](const RankReport& r) { return r.rank == speaker && !stopped_or_gone(r); });
}

// A rank that was stopped continues, finds itself accused, and ends with its own code, which may be the first that the
// launcher hears. One that does not is killed.
void Watchdog::end_culprit(const RankReport& culprit) {
  const auto is_there = [&] {
    const std::vector<RankReport> ranks = journal_.look();
    return std::ranges::any_of(ranks,
                               [&](const RankReport& r) { return r.rank == culprit.rank && r.state != 'Z' && r.state != 'X'; });
  };
  if (!is_there()) return;
  kill(culprit.process, SIGCONT);
  for (const auto begin = Clock::now(); seconds_since(begin) < kForCulprit;) {
    std::this_thread::sleep_for(kRound / 2);
    if (!is_there()) return;
  }
  kill(culprit.process, SIGKILL);
}

// Reports the verdict, or waits for the rank that does, then ends. If the report blocks, the process
// ends without it.
void Watchdog::judge_all(const std::optional<Verdict>& own) {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    end_at_once(ExitCode::hang);
  }).detach();
  const std::vector<RankReport> ranks = journal_.look();
  const bool speaks = own && journal_.accused() < 0;
  Finding found = speaks ? finding(*own) : Finding{.verdict = judge(ranks), .stack = {}, .machine = {}};
  const Verdict& verdict = found.verdict;
  const int64_t culprit = speaks ? verdict.rank : journal_.accused();
  if (speaks) journal_.accuse(culprit >= 0 ? culprit : kNobody);
  const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankReport& r) { return r.rank == culprit; });
  if (culprit == rank_) {
    std::string stack = speaks ? found.stack : stack_of(getpid());  // of the first thread, then of the one that waits for others
    if (verdict.rank == rank_ && verdict.thread > 0 && verdict.thread != getpid()) stack += " | " + stack_of(verdict.thread);
    journal_.confess(stack.empty() ? kNoStack : stack);
  }
  const bool can_answer = at != ranks.end() && !stopped_or_gone(*at);
  for (const auto begin = Clock::now(); can_answer && journal_.confession(culprit).empty() && seconds_since(begin) < kForOthers;)
    std::this_thread::sleep_for(kRound / 5);
  if (speaks && nodes_.reports()) {
    const std::string stack = journal_.confession(culprit);
    found.stack = stack == kNoStack ? "" : stack;
    if (orders_.report) orders_.report(found);
  } else {  // the reporting rank ends first: its exit code is the run's
    const bool elsewhere = nodes_.several() && at == ranks.end();
    for (const auto begin = Clock::now(); seconds_since(begin) < kForReport && (elsewhere || reports());)
      std::this_thread::sleep_for(kRound / 2);
    if (at != ranks.end() && culprit != rank_) end_culprit(*at);
  }
  end_at_once(ExitCode::hang);
}

}  // namespace trireme
