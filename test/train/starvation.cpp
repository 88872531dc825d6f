#include "test/train/starvation.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace trireme {
namespace {

cpu_set_t all_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}

cpu_set_t first_core() {
  const cpu_set_t all = all_cores();
  int core = 0;
  while (core < CPU_SETSIZE - 1 && CPU_ISSET(core, &all) == 0) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  return one;
}

void starve(pid_t thread) {
  const cpu_set_t core = first_core();
  const sched_param none{};
  sched_setaffinity(thread, sizeof core, &core);
  sched_setscheduler(thread, SCHED_IDLE, &none);
}

}  // namespace

Starvation::Starvation(int loops) {
  const cpu_set_t core = first_core();
  for (int i = 0; i < loops; ++i) {
    const pid_t loop = fork();
    if (loop == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      sched_setaffinity(0, sizeof core, &core);
      for (volatile uint64_t n = 0;;) n = n + 1;
    }
    loops_.push_back(loop);
  }
}

Starvation::~Starvation() { end(); }

void Starvation::take(pid_t thread) {
  starve(thread);
  taken_.push_back(thread);
}

void Starvation::end() {
  for (const pid_t loop : loops_) kill(loop, SIGKILL), waitpid(loop, nullptr, 0);
  const cpu_set_t cores = all_cores();
  const sched_param none{};
  for (const pid_t thread : taken_) sched_setaffinity(thread, sizeof cores, &cores), sched_setscheduler(thread, SCHED_OTHER, &none);
  loops_.clear(), taken_.clear();
}

void starve_this_thread() { starve(0); }

}  // namespace trireme
