#include "train/telemetry/time_left.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme {
namespace {

constexpr size_t kRemembered = 100, kShown = 20;        // steps
constexpr double kMostForTime = 10, kMostForSpeed = 3;  // medians that a step counts at most

}  // namespace

void TimeLeft::step(double seconds) {
  if (!std::isfinite(seconds)) return;
  steps_.push_back(seconds);
  if (steps_.size() > kRemembered) steps_.pop_front();
}

void TimeLeft::evaluation(int64_t step, const std::string& part, double seconds) {
  if (std::isfinite(seconds)) parts_[part] = seconds;
  evaluated_ = std::max(evaluated_, step);
}

void TimeLeft::save(double stall) {
  if (std::isfinite(stall)) stall_ = stall;
}

double TimeLeft::usual_step() const { return mean(kShown, kMostForSpeed); }

double TimeLeft::after(int64_t done, double begun) const {
  const auto multiples = [&](int64_t every) { return every > 0 ? (schedule_.steps - 1) / every - done / every : 0; };
  const bool open = schedule_.evaluates_at(done) && evaluated_ < done;  // after the last step, too
  const double steps = static_cast<double>(std::max<int64_t>(schedule_.steps - done, 0));
  const double last = schedule_.eval_every > 0 && done < schedule_.steps ? 1 : 0;
  const double evaluations =
      static_cast<double>(std::max<int64_t>(multiples(schedule_.eval_every), 0)) + last + (open ? 1 - begun : 0);
  const double saves = static_cast<double>(std::max<int64_t>(multiples(schedule_.save_every), 0)) + 1;
  return steps * mean(kRemembered, kMostForTime) + evaluations * this->evaluations() + saves * stall_;
}

double TimeLeft::evaluations() const {
  if (schedule_.evaluation_in_steps == 0) return 0;
  if (parts_.empty()) return schedule_.evaluation_in_steps * mean(kRemembered, kMostForSpeed);
  double seconds = 0;
  for (const auto& [part, time] : parts_) seconds += time;
  return seconds;
}

double TimeLeft::mean(size_t last, double cap) const {
  std::vector<double> recent(steps_.end() - static_cast<std::ptrdiff_t>(std::min(last, steps_.size())), steps_.end());
  if (recent.empty()) return 0;
  std::vector<double> sorted = recent;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2));
  const double most = cap * sorted[sorted.size() / 2];
  double sum = 0;
  for (const double time : recent) sum += std::min(time, most);
  return sum / static_cast<double>(recent.size());
}

}  // namespace trireme
