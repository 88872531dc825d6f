// Ticks of an axis, and their labels.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], about `count` of them.
std::vector<double> nice_ticks(double low, double high, int count);

// Labels for ticks that share one unit: {0, 5000, 10000} -> {"0", "5k", "10k"}; {0, 0.0002} -> {"0", "2e-4"}.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace trireme
