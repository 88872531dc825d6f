#include "train/run/attempt_watch.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

constexpr auto kLookPeriod = std::chrono::seconds(1);  // between two looks at the processes
constexpr auto kRepeat = std::chrono::seconds(2);      // between two requests to mpirun to stop
constexpr auto kLateLook = std::chrono::seconds(5);    // that a look may come after the one before
constexpr auto kLeftAlone = std::chrono::seconds(10);  // that a launcher may take to end after its ranks, or without any

// mpirun ends its ranks when it is asked to end itself, but passes this on, which they take the same way.
int passed_on(int signal, bool by_mpirun) {
  return by_mpirun && (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) ? SIGUSR1 : signal;
}

}  // namespace

bool AttemptWatch::wants_processes(Clock::time_point now) {
  if ((!by_mpirun_ && frozen_after_ <= 0) || now - looked_ < kLookPeriod) return false;
  looked_ = now;
  return true;
}

void AttemptWatch::ask(int signal, Clock::time_point now) {
  if (passed_ == 0) asked_at_ = now;
  passed_ = signal, passed_at_ = now;
}

// Detects a launcher that was asked to stop and hangs before it has started anything: it loses the requests, and nothing has
// begun that could be saved.
bool AttemptWatch::starts_nothing(const AttemptSeen& seen) const {
  return passed_ != 0 && !started_ && seen.now - asked_at_ > kLeftAlone;
}

// Detects a launcher that stays when all that it has started has gone: Open MPI's may, when a rank dies while it starts.
bool AttemptWatch::left_alone(const AttemptSeen& seen) {
  if (seen.processes->alive || (seen.processes->any && !started_)) since_ = seen.now;
  started_ |= seen.processes->any;
  return started_ && seen.now - since_ > kLeftAlone;
}

// A thread of each rank wakes up ten times a second, however busy the machine is and whatever the rank waits for. A look that comes
// late means that this process was stopped along with them.
bool AttemptWatch::are_frozen(const AttemptSeen& seen) {
  const RunProcesses& p = *seen.processes;
  const bool moves = p.ranks.empty() || p.traced || p.scheduled != scheduled_ || p.ranks != ranks_;
  if (moves || seen.now - std::exchange(seen_, seen.now) > kLateLook) ran_ = seen.now;
  scheduled_ = p.scheduled, ranks_ = p.ranks, seen_ = seen.now;
  return std::chrono::duration<double>(seen.now - ran_).count() >= frozen_after_;
}

AttemptOrder AttemptWatch::after(const AttemptSeen& seen) {
  const bool alone = seen.processes && left_alone(seen);
  if (seen.stop_signal != 0 && seen.stop_signal != passed_) {
    ask(seen.stop_signal, seen.now);
    return {.signal = passed_on(seen.stop_signal, by_mpirun_)};
  }
  // mpirun loses a signal that comes before it has started its ranks; they take another one for the same request.
  if (by_mpirun_ && passed_ != 0 && seen.now - passed_at_ >= kRepeat) {
    passed_at_ = seen.now;
    return {.signal = SIGUSR1};
  }
  if (by_mpirun_ && passed_ == 0 && seen.processes && seen.processes->told_to_end) {
    ask(SIGTERM, seen.now);
    return {.signal = SIGUSR1, .say = "the launcher was asked to end: the run saves first"};
  }
  if (by_mpirun_ && seen.processes && starts_nothing(seen)) {
    by_mpirun_ = false;
    return {.signal = SIGKILL, .say = "the launcher hangs before it has started a rank: it is ended"};
  }
  if (by_mpirun_ && alone) {
    by_mpirun_ = false;
    return {.signal = SIGKILL, .say = "the launcher hangs although its ranks have ended: it is ended too"};
  }
  if (frozen_after_ > 0 && seen.processes && are_frozen(seen) && !std::exchange(ended_frozen_, true))
    return {.signal = SIGKILL,
            .ranks = seen.processes->ranks,
            .say = text("no rank was given a processor for ", std::llround(frozen_after_),
                        " s: they are stopped or frozen, and are ended (--frozen-after)")};
  return {};
}

}  // namespace trireme
