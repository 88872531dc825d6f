// The steady clock, the seconds elapsed since a time point, a thread's processor time, and the time of day.
#pragma once

#include <chrono>
#include <string>

namespace trireme {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double thread_seconds();  // processor time of the calling thread
double unix_seconds();    // since 1970
std::string utc_now();    // "2026-02-03T04:05:06Z"

}  // namespace trireme
