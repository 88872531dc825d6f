#include "train/health/signals.h"

#include <csignal>
#include <initializer_list>

namespace trireme {
namespace {

// The one thing a signal handler may touch.
volatile std::sig_atomic_t received = 0;

void remember(int signal) {
  if (received == SIGINT && signal == SIGINT) std::signal(SIGINT, SIG_DFL), std::raise(SIGINT);
  received = signal;
}

}  // namespace

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaction(signal, &action, nullptr);
}

int stop_signal() { return received; }

}  // namespace trireme
