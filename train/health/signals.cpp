#include "train/health/signals.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string_view>

namespace trireme {
namespace {

constexpr std::string_view kLastWords =
    "\nended at once by the second Ctrl-C: steps since the newest checkpoint are lost; the same command continues from there\n";
constexpr std::array kRequests{SIGHUP, SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
constexpr int kErrors = 2;  // stderr's file descriptor: a handler may call write() but use no stream

// Variables of a type that a signal handler may write.
volatile std::sig_atomic_t received = 0, speaks_at_end = 0, dies_with_parent = 0;

const sigset_t& requests() {
  static const sigset_t set = [] {
    sigset_t all;
    sigemptyset(&all);
    for (const int signal : kRequests) sigaddset(&all, signal);
    return all;
  }();
  return set;
}

void end_at_once() {
  if (speaks_at_end != 0) [[maybe_unused]]
    const ssize_t written = write(kErrors, kLastWords.data(), kLastWords.size());
  std::signal(SIGINT, SIG_DFL), std::raise(SIGINT);
}

// The parent-death signal is the first thread's own, so that thread handles the request.
void remember(int signal) {
  if (gettid() != getpid()) {
    tgkill(getpid(), getpid(), signal);
    return;
  }
  if (dies_with_parent != 0) prctl(PR_SET_PDEATHSIG, 0);
  if (received == SIGINT && signal == SIGINT) end_at_once();
  received = signal;
}

}  // namespace

void hold_signals() { pthread_sigmask(SIG_BLOCK, &requests(), nullptr); }

void outlive_parent_once_asked() {
  dies_with_parent = 1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void watch_signals(bool speaks) {
  speaks_at_end = speaks ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (const int signal : kRequests)
    if (signal != SIGHUP || !is_ignored(signal)) sigaction(signal, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &requests(), nullptr);
}

void forget_signals() {
  for (const int signal : kRequests)
    if (!is_ignored(signal)) std::signal(signal, SIG_DFL);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

int stop_signal() { return received; }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace trireme
