#include "train/run/step_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trireme {
namespace {

constexpr double kKept = 0.98;    // of the weight of what came before, at each update
constexpr int64_t kFirst = 32;    // updates before anything can stand out
constexpr int64_t kBehind = 2;    // steps
constexpr double kLeast = 0.005;  // of the mean: the least that a standard deviation counts

int64_t bits_of(double x) { return std::bit_cast<int64_t>(x); }
double of_bits(int64_t bits) { return std::bit_cast<double>(bits); }

float as_limit(double x) { return static_cast<float>(std::min(x, static_cast<double>(StepLimits::kLargest))); }

}  // namespace

void StepStatistics::Usual::enter(double x, int64_t count) {
  const double weight = std::max(1 - kKept, 1.0 / static_cast<double>(count)), apart = x - mean;
  mean += weight * apart;
  variance = (1 - weight) * (variance + weight * apart * apart);
}

double StepStatistics::Usual::highest(double sigmas) const {
  return mean + sigmas * std::max(std::sqrt(variance), kLeast * std::abs(mean));
}

SeenData StepStatistics::seen(int64_t step, const SeenData& each) const {
  const int64_t steps = step - loaded_;
  return {.sequences = before_.sequences + steps * each.sequences, .tokens = before_.tokens + steps * each.tokens};
}

StepLimits StepStatistics::limits(int64_t step) {
  for (; !waiting_.empty() && waiting_.front().step <= step - kBehind; waiting_.pop_front()) {
    ++entered_;
    loss_.enter(waiting_.front().loss, entered_);
    norm_.enter(waiting_.front().norm, entered_);
  }
  if (sigmas_ == 0 || entered_ < kFirst) return {};
  const double norm = norm_.highest(sigmas_);
  return {.squared_norm = as_limit(norm * norm), .loss = as_limit(loss_.highest(sigmas_))};
}

void StepStatistics::saw(int64_t step, const StepResult& result) {
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm) && !overflows(result);
  not_finite_ = finite ? 0 : not_finite_ + 1;
  refused_ = result.updated ? 0 : refused_ + 1;
  zero_gradients_ = result.grad_norm == 0 && result.loss != 0 ? zero_gradients_ + 1 : 0;
  if (!result.updated) return;
  ++updates_;
  waiting_.push_back({.step = step, .loss = result.loss, .norm = static_cast<float>(result.grad_norm)});
}

void StepStatistics::go_back_to(const StepStatistics& then) {
  const int64_t refused = refused_, not_finite = not_finite_, loaded = loaded_;
  const SeenData before = before_;
  *this = then;
  refused_ = refused, not_finite_ = not_finite;
  loaded_ = loaded, before_ = before;
}

void StepStatistics::forget() {
  entered_ = refused_ = 0;
  loss_ = norm_ = {};
}

bool StepStatistics::overflows(const StepResult& result) { return result.squares.large() && !result.updated; }

std::string StepStatistics::describe(const StepResult& result) {
  const auto held = [](const char* name, double value, float limit) {
    return std::string(text(name, " ", value, limit < StepLimits::kLargest ? std::string(text(" (at most ", limit, ")")) : ""));
  };
  const float norm =
      result.limits.squared_norm < StepLimits::kLargest ? std::sqrt(result.limits.squared_norm) : StepLimits::kLargest;
  return held("loss", result.loss, result.limits.loss) + ", " + held("gradient norm", result.grad_norm, norm) +
         (overflows(result) ? ": finite elements, too large for an update: the model has diverged" : "");
}

void StepStatistics::store(std::map<std::string, int64_t>& counters) const {
  counters["updates"] = updates_;
  counters["history/entered"] = entered_;
  counters["history/refused"] = refused_;
  counters["history/not_finite"] = not_finite_;
  if (zero_gradients_ > 0) counters["history/zero_gradients"] = zero_gradients_;
  for (const auto& [name, usual] : {std::pair("history/loss", loss_), std::pair("history/norm", norm_)}) {
    counters[std::string(name) + "/mean"] = bits_of(usual.mean);
    counters[std::string(name) + "/variance"] = bits_of(usual.variance);
  }
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const std::string name = "history/waiting/" + std::to_string(i);
    counters[name + "/step"] = waiting_[i].step;
    counters[name + "/loss"] = bits_of(waiting_[i].loss);
    counters[name + "/norm"] = bits_of(waiting_[i].norm);
  }
}

void StepStatistics::load(const std::map<std::string, int64_t>& counters, int64_t steps) {
  *this = StepStatistics(sigmas_);
  const auto get = [&](const std::string& name) {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
  };
  if (counters.contains("sequences") && counters.contains("tokens"))
    loaded_ = steps, before_ = {.sequences = get("sequences"), .tokens = get("tokens")};
  updates_ = counters.contains("updates") ? get("updates") : steps;
  entered_ = get("history/entered");
  refused_ = get("history/refused");
  not_finite_ = get("history/not_finite");
  zero_gradients_ = get("history/zero_gradients");
  for (const auto& [name, usual] : {std::pair("history/loss", &loss_), std::pair("history/norm", &norm_)}) {
    usual->mean = of_bits(get(std::string(name) + "/mean"));
    usual->variance = of_bits(get(std::string(name) + "/variance"));
  }
  for (size_t i = 0;; ++i) {
    const std::string name = "history/waiting/" + std::to_string(i);
    if (!counters.contains(name + "/step")) return;
    waiting_.push_back({.step = get(name + "/step"),
                        .loss = static_cast<float>(of_bits(get(name + "/loss"))),
                        .norm = static_cast<float>(of_bits(get(name + "/norm")))});
  }
}

}  // namespace trireme
