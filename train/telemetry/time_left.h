// TimeLeft: the seconds that a run will still take, estimated from its steps, evaluations and saves so far.
//
// On a busy machine single steps take a hundred times as long as others. A step therefore counts at most ten times the median of
// its neighbours for the time left, and three times for the speed that people see.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace trireme {

// The evaluations and saves of a run.
struct RunSchedule {
  int64_t steps = 1;               // in all
  int64_t eval_every = 0;          // 0: no evaluations
  int64_t save_every = 0;          // 0: at the end alone
  double evaluation_in_steps = 0;  // guess of what an evaluation costs until one was measured; 0: the run has none
  bool evaluates_at(int64_t step) const { return eval_every > 0 && (step == steps || (step > 0 && step % eval_every == 0)); }
};

class TimeLeft {
 public:
  explicit TimeLeft(const RunSchedule& schedule) : schedule_(schedule) {}

  // Measurements, in seconds; also those of earlier starts of the run.
  void step(double seconds);
  void evaluation(int64_t step, const std::string& part, double seconds);  // part: validation text, or a file of questions
  void save(double stall);                                                 // that steps waited

  // Seconds of a step as a person sees it: the mean of the last 20. 0 before the first.
  double usual_step() const;
  // Seconds from `done` finished steps to the end of the run. The evaluation after step `done` counts until it is measured;
  // `begun` is its share that is done, 0 to 1.
  double after(int64_t done, double begun = 0) const;

 private:
  double evaluations() const;  // seconds of one
  double mean(size_t last, double cap) const;

  RunSchedule schedule_;
  std::deque<double> steps_;
  std::map<std::string, double> parts_;  // seconds of an evaluation's
  int64_t evaluated_ = -1;               // step
  double stall_ = 0;                     // of the last save
};

}  // namespace trireme
