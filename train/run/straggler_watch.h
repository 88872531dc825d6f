// StragglerWatch: compares the work of all ranks over windows of steps, names one that is slow, and
// may end the run for it (train.on_straggler).
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/clock.h"
#include "train/health/machine_counters.h"
#include "train/health/stragglers.h"
#include "train/run/session.h"

namespace trireme {

class StragglerWatch {
 public:
  // `session` outlives it. On a GPU, with one rank, or with train.straggler_ratio 0 it does nothing.
  explicit StragglerWatch(Session& session);

  // After each step, on all ranks: `comparable` unless something beside the steps has work on some ranks only, such as a save.
  void step_ended(bool comparable);
  // All ranks together, at the same step.
  bool due() const { return filled_ == RankWork::kSteps; }
  void judge(int64_t step);

  // Rank 0: the slow rank for which the run is to end, plus one; 0: none. To be agreed on by all ranks.
  int64_t wanted_end() const { return end_for_; }
  // All ranks together, when the state is saved: MachineError that names the rank.
  [[noreturn]] void end_run(int64_t rank, int64_t step) const;

 private:
  RankWork take();
  void say(int64_t step, std::span<const RankWork> ranks);
  void follow(const std::optional<Straggler>& found, int64_t step);

  Session& session_;
  const bool active_;
  int64_t steps_ = 0;  // since the start of this process
  size_t filled_ = 0;
  double data_before_ = 0;  // seconds that the step before waited for its data
  double core_rates_ = 0;   // sum of the samples of this window
  RankWork window_{};
  CounterReader machine_;
  // Rank 0's:
  int64_t suspect_ = -1;                // the rank that the last windows found slow
  int64_t times_ = 0;                   // so many in a row
  int64_t first_step_ = 0;              // of the first of them
  Clock::time_point since_{};           // its end
  int64_t named_ = -1;                  // suspect_, once reported
  std::set<std::string> slow_links_{};  // already reported
  std::string words_;                   // on the last rank named
  std::string host_;
  int64_t end_for_ = 0;
};

}  // namespace trireme
