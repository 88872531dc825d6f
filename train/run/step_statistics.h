// StepStatistics: how many steps were updates, what they have read, and the usual losses and gradient norms. Kept in checkpoints.
//
// Means and variances are exponentially weighted (West, "Updating mean and variance estimates: an improved method", 1979), over
// about fifty updates. What a step may have at most follows from the steps up to the last but one, whose results are known on
// every device when the step begins; what did not become an update does not enter.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "train/step/step.h"

namespace trireme {

// Sequences and tokens, of all replicas.
struct SeenData {
  int64_t sequences = 0, tokens = 0;
};

class StepStatistics {
 public:
  explicit StepStatistics(double spike_sigmas) : sigmas_(spike_sigmas) {}

  int64_t updates() const { return updates_; }
  // Data of the run's steps up to `step`. Those that this process began after its checkpoint read `each`; earlier ones may have had
  // another batch or context.
  SeenData seen(int64_t step, const SeenData& each) const;
  // The limits of step number `step`, counted from 1. Call it for each step in turn.
  StepLimits limits(int64_t step);
  // Step number `step` was an update, or was none.
  void saw(int64_t step, const StepResult& result);
  // Steps in a row up to the last one seen that were no update, or not finite or too large for one.
  int64_t refused() const { return refused_; }
  int64_t not_finite() const { return not_finite_; }
  // Steps in a row up to the last one seen whose gradients are zero although they have a loss.
  int64_t zero_gradients() const { return zero_gradients_; }
  // Resets the means and variances.
  void forget();
  // True if an update would make numbers that are not finite.
  static bool overflows(const StepResult& result);
  // "loss 9.1 (at most 3.3), gradient norm 2 (at most 7)"
  static std::string describe(const StepResult& result);

  // Continues from the state of an earlier step: its statistics, `then`, but this run of refused steps, and all data seen.
  void go_back_to(const StepStatistics& then);

  // As counters of a checkpoint, and from them; state_of() adds those of the data. A checkpoint without them had an update in each
  // of its `steps`, and steps that read as much as today's.
  void store(std::map<std::string, int64_t>& counters) const;
  void load(const std::map<std::string, int64_t>& counters, int64_t steps);

 private:
  struct Usual {
    double mean = 0, variance = 0;
    void enter(double x, int64_t count);
    double highest(double sigmas) const;
  };
  struct Seen {
    int64_t step;
    float loss, norm;
  };

  double sigmas_;
  int64_t loaded_ = 0;  // the step of the checkpoint from which this process continues
  SeenData before_{};   // up to it
  int64_t updates_ = 0, entered_ = 0, refused_ = 0, not_finite_ = 0, zero_gradients_ = 0;
  Usual loss_, norm_;
  std::deque<Seen> waiting_;  // of the last two steps, not entered yet
};

}  // namespace trireme
