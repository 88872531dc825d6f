#include "train/health/core_rate.h"

#include "base/clock.h"

namespace trireme {

double core_rate() {
  constexpr int kTurns = 16384;
  const double begin = thread_seconds();
  for (int turn = 0; turn < kTurns; ++turn) asm volatile("" : "+r"(turn));  // keeps the loop as it stands
  const double seconds = thread_seconds() - begin;
  return seconds > 0 ? kTurns / seconds : 0;
}

}  // namespace trireme
