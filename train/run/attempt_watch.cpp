#include "train/run/attempt_watch.h"

#include <chrono>
#include <csignal>
#include <utility>

namespace trireme {
namespace {

constexpr auto kLook = std::chrono::seconds(1);        // between two looks at the processes
constexpr auto kLeftAlone = std::chrono::seconds(10);  // that a launcher may take to end after its ranks

// mpirun ends its ranks when it is asked to end itself, but passes this on, which they take the same way.
int passed_on(int signal, bool by_mpirun) { return by_mpirun && (signal == SIGTERM || signal == SIGINT) ? SIGUSR1 : signal; }

}  // namespace

bool AttemptWatch::wants_processes(Clock::time_point now) {
  if (!by_mpirun_ || now - looked_ < kLook) return false;
  looked_ = now;
  return true;
}

// Detects a launcher that stays when all that it has started has gone: Open MPI's may, when a rank dies while it starts.
bool AttemptWatch::left_alone(const AttemptSeen& seen) {
  if (seen.processes->alive || (seen.processes->any && !started_)) since_ = seen.now;
  started_ |= seen.processes->any;
  return started_ && seen.now - since_ > kLeftAlone;
}

AttemptOrder AttemptWatch::after(const AttemptSeen& seen) {
  if (seen.stop_signal != 0 && seen.stop_signal != std::exchange(passed_, seen.stop_signal))
    return {.signal = passed_on(seen.stop_signal, by_mpirun_)};
  if (by_mpirun_ && seen.processes && left_alone(seen)) {
    by_mpirun_ = false;
    return {.signal = SIGKILL, .say = "the launcher hangs although its ranks have ended: it is ended too"};
  }
  return {};
}

}  // namespace trireme
