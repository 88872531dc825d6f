#include "train/health/interrupts.h"

#include <csignal>

namespace trireme {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void note_interrupt(int) { interrupted = 1; }

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;  // without SA_RESTART
  sigaction(SIGINT, &action, nullptr);
}

Interrupts::~Interrupts() { std::signal(SIGINT, SIG_DFL); }

bool Interrupts::pending() const { return interrupted != 0; }

bool Interrupts::take() {
  const bool was = pending();
  interrupted = 0;
  return was;
}

}  // namespace trireme
