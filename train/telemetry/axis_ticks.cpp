#include "train/telemetry/axis_ticks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/number_format.h"

namespace trireme {

std::vector<double> nice_ticks(double low, double high, int count) {
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough))), lead = rough / power;
  const double step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-6)),
             last = static_cast<int64_t>(std::floor(high / step + 1e-6));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double largest = 0;
  for (const double tick : ticks) largest = std::max(largest, std::abs(tick));
  double unit = 1;
  std::string suffix;
  if (largest >= 1e4) {
    const auto thousands = std::min(static_cast<int>(std::log10(largest * 1.000001) / 3), 4);
    unit = std::pow(1000, thousands);
    suffix = std::string(" kMBT").substr(static_cast<size_t>(thousands), 1);
  } else if (largest > 0 && largest < 0.01) {
    const auto power = static_cast<int>(std::floor(std::log10(largest * 1.000001)));
    unit = std::pow(10, power);
    suffix = "e" + std::to_string(power);
  }
  const double step = ticks.size() > 1 ? (ticks[1] - ticks[0]) / unit : largest / unit;
  const int decimals = step > 0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step * 1.000001))), 0, 12) : 0;
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(tick == 0 ? "0" : fixed(tick / unit, decimals) + suffix);
  return labels;
}

}  // namespace trireme
