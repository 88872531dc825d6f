// Steps: begins the steps of a run, ends them in order, logs them, and handles those that are no update.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/clock.h"
#include "train/run/session.h"
#include "train/run/step_profile.h"
#include "train/run/straggler_watch.h"

namespace trireme {

// The replica's next batch, with the targets of all replicas counted. All ranks call it together.
Batch next_batch(Session& session);

// Steps since the last judgement that were no update: of the rank that has most and of the one that has fewest.
struct BadSteps {
  int64_t most, fewest;
};

// On a GPU one step is always in flight: the host reads the loss of a step after the next has begun.
class Steps {
 public:
  // Continues after `ended` finished steps, which it counts. Both outlive it.
  Steps(Session& session, int64_t& ended) : session_(session), begun_(ended), ended_(ended) {}

  int64_t begun() const { return begun_; }
  bool computed() const { return computed_; }  // one, at least
  StepProfile& profile() { return profile_; }
  StragglerWatch& stragglers() { return stragglers_; }
  void begin();
  void end_all();

  // Steps that were no update and are not judged: to be agreed on by all ranks.
  int64_t bad() const { return static_cast<int64_t>(bad_.size()); }
  // All ranks, with the counts of all. They are the same on each, unless one of them has a fault: Error. NumericsError when bad
  // steps end the run.
  void judge(const BadSteps& bad_steps);
  // Ends all steps and judges them, when the ranks have not agreed yet.
  void settle();

 private:
  struct Bad {
    int64_t step, weights;  // weights: the update that it started from
    StepResult result;
    int64_t refused, not_finite;  // steps in a row up to this one
    std::string describe() const { return std::string(text("step ", step, ": ", StepStatistics::describe(result))); }
  };

  void leave_out(int64_t step);
  void pass_over(int64_t step);
  void end();
  std::vector<PartTime> parts_of_step() const;
  void log(const StepResult& result, double seconds, std::vector<PartTime> parts);
  void note_bad(const StepResult& result);
  void warn_of_zero_gradients(const StepResult& result);
  [[noreturn]] void disagree();
  void judge(const Bad& bad);
  std::string cause(const Bad& bad);
  std::string fault(const Bad& bad, const StepResult& again, const Batch& batch);
  void roll_back(const std::string& what);
  [[noreturn]] void give_up(const Bad& bad, const std::string& what);

  Session& session_;
  StepProfile profile_{session_};
  StragglerWatch stragglers_{session_};
  int64_t begun_;
  int64_t& ended_;
  int64_t weights_ = ended_;  // the last step that was an update, or the step of the checkpoint that a roll-back has loaded
  bool computed_ = false;
  std::vector<Bad> bad_;            // not judged yet
  int64_t rolled_back_ = 0;         // steps up to here are dealt with
  Clock::time_point since_{};       // the end of the step before, or the beginning of the first
  std::array<double, 2> waited_{};  // seconds for its batch, of the last steps begun
};

}  // namespace trireme
