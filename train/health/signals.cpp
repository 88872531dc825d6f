#include "train/health/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace trireme {
namespace {

constexpr std::string_view kLastWords =
    "\nended at once by the second Ctrl-C: steps since the newest checkpoint are lost; the same command continues from there\n";
constexpr int kErrors = 2;  // stderr's file descriptor: a handler may call write() but use no stream

// Variables of a type that a signal handler may write.
volatile std::sig_atomic_t received = 0, speaks_at_end = 0;

void end_at_once() {
  if (speaks_at_end != 0) [[maybe_unused]]
    const ssize_t written = write(kErrors, kLastWords.data(), kLastWords.size());
  std::signal(SIGINT, SIG_DFL), std::raise(SIGINT);
}

void remember(int signal) {
  if (received == SIGINT && signal == SIGINT) end_at_once();
  received = signal;
}

}  // namespace

void watch_signals(bool speaks) {
  speaks_at_end = speaks ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaction(signal, &action, nullptr);
}

int stop_signal() { return received; }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace trireme
