// The steady clock, and the seconds elapsed since a time point.
#pragma once

#include <chrono>

namespace trireme {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace trireme
