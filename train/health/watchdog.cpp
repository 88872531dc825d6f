#include "train/health/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "train/health/stack.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kRound{100};
constexpr size_t kSteps = 200;                                    // number of durations kept
constexpr size_t kEnough = 5;                                     // durations needed for a limit
constexpr int64_t kNobody = std::numeric_limits<int32_t>::max();  // accused if the culprit is unknown
constexpr auto kNoStack = "-";                                    // the culprit's confession when its stack cannot be read
constexpr double kPaused = 1;     // seconds: a round that takes longer means that the process was stopped
constexpr double kForOthers = 2;  // seconds: extra wait of ranks that need not report; wait for the culprit's stack

bool ended(const RankReport& r) { return r.state == 'Z' || r.state == 'X'; }
bool speechless(const RankReport& r) { return ended(r) || r.state == 'T' || r.state == 't'; }

}  // namespace

Watchdog::Watchdog(Journal& journal, int64_t rank, Orders orders) : journal_(journal), rank_(rank), orders_(std::move(orders)) {
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
    const bool paused = seconds_since(round) > kPaused;
    round = Clock::now();
    if (const int64_t now = journal_.moves(); now != moves || paused) {
      moves = now, moved = round, warned = false;
      if (std::exchange(told_, false)) orders_.board->take_back();
      continue;
    }
    if (const double silent = seconds_since(moved), limit = this->limit(); silent >= limit && decide(silent, limit, warned))
      return judge_all();
  }
}

// Returns true if this rank must end the run now.
bool Watchdog::decide(double silent, double limit, bool& warned) {
  const std::vector<RankReport> ranks = journal_.look();
  const auto speaker = std::find_if(ranks.begin(), ranks.end(), [](const RankReport& r) { return !speechless(r); });
  const bool mine = speaker == ranks.end() || speaker->rank == rank_;
  const auto at_disk = [](const RankReport& r) { return r.doing != "training"; };
  bool patient = std::none_of(ranks.begin(), ranks.end(), speechless) && std::any_of(ranks.begin(), ranks.end(), at_disk);
  if (patient && mine && !std::exchange(warned, true) && orders_.warn) orders_.warn(judge(ranks).line);
  // A node without a report may still make progress, for example with a disk.
  if (orders_.board != nullptr) patient = mine ? !enough_told(ranks) : true;
  if (patient) limit = std::max(limit, orders_.for_disks * orders_.patience);
  return silent >= limit + (mine ? 0 : kForOthers);
}

// Reports this node's ranks to the others. Returns true if all nodes have reported and no rank has
// to be waited for.
bool Watchdog::enough_told(const std::vector<RankReport>& ranks) {
  if (!std::exchange(told_, true)) orders_.board->report(ranks);
  nodes_ = orders_.board->read();
  if (std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node.empty(); })) return false;
  const std::vector<RankReport> all = all_told();
  return std::any_of(all.begin(), all.end(), speechless) ||
         std::all_of(all.begin(), all.end(), [](const RankReport& r) { return r.doing == "training"; });
}

std::vector<RankReport> Watchdog::all_told() const {
  std::vector<RankReport> all;
  for (const auto& node : nodes_) all.insert(all.end(), node.begin(), node.end());
  return all;
}

// Returns true if this node reports the hang. Among nodes with a report, it is the culprit's node, which
// can read its stack; otherwise the first.
bool Watchdog::speaks_for_all(int64_t culprit) const {
  if (orders_.board == nullptr || nodes_.empty()) return true;
  const auto can_speak = [](const auto& node) { return std::any_of(node.begin(), node.end(), std::not_fn(speechless)); };
  const auto has_it = [&](const auto& node) {
    return can_speak(node) && std::any_of(node.begin(), node.end(), [&](const RankReport& r) { return r.rank == culprit; });
  };
  auto speaker = std::find_if(nodes_.begin(), nodes_.end(), has_it);
  if (speaker == nodes_.end()) speaker = std::find_if(nodes_.begin(), nodes_.end(), can_speak);
  return speaker == nodes_.end() || speaker - nodes_.begin() == orders_.board->node();
}

// Reports the verdict, or waits for the rank that does, then ends. If the report blocks, the process
// ends without it.
void Watchdog::judge_all() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    end_at_once(ExitCode::hang);
  }).detach();
  const bool speaks = journal_.accused() < 0;
  const std::vector<RankReport> ranks = journal_.look(), all = speaks && !nodes_.empty() ? all_told() : ranks;
  Verdict verdict = judge(all);
  for (size_t node = 0; node < nodes_.size() && speaks; ++node)
    if (nodes_[node].empty()) verdict.line += "; node " + std::to_string(node) + " has reported nothing";
  const int64_t culprit = speaks ? verdict.rank : journal_.accused();
  if (speaks) journal_.accuse(culprit >= 0 ? culprit : kNobody);
  const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const RankReport& r) { return r.rank == culprit; });
  if (culprit == rank_) {
    std::string stack = stack_of(getpid());  // of the first thread, then of the one that waits for others
    if (verdict.rank == rank_ && verdict.thread > 0 && verdict.thread != getpid()) stack += " | " + stack_of(verdict.thread);
    journal_.confess(stack.empty() ? kNoStack : stack);
  }
  const bool can_answer = at != ranks.end() && !speechless(*at);
  for (const auto begin = Clock::now(); can_answer && journal_.confession(culprit).empty() && seconds_since(begin) < kForOthers;)
    std::this_thread::sleep_for(kRound / 5);
  if (speaks && speaks_for_all(culprit)) {
    const std::string stack = journal_.confession(culprit);
    if (orders_.report) orders_.report(verdict, stack == kNoStack ? "" : stack);
  } else {  // the reporting rank ends first: its exit code is the run's
    const bool elsewhere = orders_.board != nullptr && at == ranks.end();  // its node reads its stack first
    std::this_thread::sleep_for(std::chrono::duration<double>(elsewhere ? 3 * kForOthers : kForOthers / 2));
    if (at != ranks.end() && culprit != rank_ && !ended(*at))
      kill(at->process, SIGKILL);  // the only signal that ends a stopped process
  }
  end_at_once(ExitCode::hang);
}

}  // namespace trireme
