// Learning rate of each step, a pure function of the config.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/config/config.h"

namespace trireme {

// Returns the learning rate of optimizer step `step`, counted from 0. Warm-up rises linearly and
// reaches lr at step `warmup - 1`. The last step of linear, cosine and wsd has lr * min_lr. wsd is
// constant until the last `cooldown` fraction of the steps (Hu et al., "MiniCPM", 2024).
inline double learning_rate(const TrainConfig& config, int64_t step) {
  if (step < config.warmup) return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup);
  int64_t begin = config.warmup;
  if (config.schedule == LrSchedule::wsd)
    begin = std::max(begin, config.steps - static_cast<int64_t>(std::llround(config.cooldown * static_cast<double>(config.steps))));
  const double length = static_cast<double>(std::max<int64_t>(1, config.steps - begin));
  const double done = std::clamp(static_cast<double>(step + 1 - begin) / length, 0.0, 1.0);
  const double floor = config.lr * config.min_lr;
  switch (config.schedule) {
    case LrSchedule::constant:
      return config.lr;
    case LrSchedule::linear:
    case LrSchedule::wsd:
      return config.lr + (floor - config.lr) * done;
    case LrSchedule::cosine:
      return floor + (config.lr - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  return config.lr;
}

}  // namespace trireme
