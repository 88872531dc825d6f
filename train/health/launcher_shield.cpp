#include "train/health/launcher_shield.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <initializer_list>

#include "parallel/world.h"
#include "train/health/signals.h"

namespace trireme {
namespace {

constexpr timespec kLookForLauncher{.tv_sec = 0, .tv_nsec = 100'000'000};

bool kills_after_a_second() {
  const auto set = [](const char* name) { return !environment(name).empty(); };
  return set("OMPI_COMM_WORLD_RANK") && !set("OMPI_MCA_odls_base_sigkill_timeout") && !set("PRTE_MCA_odls_base_sigkill_timeout") &&
         !set("OMPI_MCA_orte_forward_job_control");
}

// Ends this process as the rank has ended.
[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &none);  // the rank has left its own
    const int signal = WTERMSIG(status);
    sigset_t one;
    sigemptyset(&one), sigaddset(&one, signal);
    std::signal(signal, SIG_DFL), std::raise(signal);
    sigprocmask(SIG_UNBLOCK, &one, nullptr);
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

// Passes on signals until the rank has ended. A launcher that is gone takes the rank along, unless it had asked it to stop before.
[[noreturn]] void stand_before(pid_t rank, pid_t launcher, const sigset_t& signals) {
  for (bool asked = false;;) {
    const int signal = sigtimedwait(&signals, nullptr, &kLookForLauncher);
    int status = 0;
    if (waitpid(rank, &status, WNOHANG) == rank) end_as(status);
    if (signal > 0 && signal != SIGCHLD) kill(rank, signal);
    asked |= signal == SIGTERM;
    if (getppid() == launcher) continue;
    if (!asked) kill(rank, SIGKILL);
    _exit(static_cast<int>(ExitCode::hang));
  }
}

}  // namespace

void shield_from_launcher() {
  if (!kills_after_a_second()) return;
  sigset_t passed, before;
  sigfillset(&passed);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&passed, own);
  sigprocmask(SIG_BLOCK, &passed, &before);
  const pid_t launcher = getppid(), keeper = getpid(), rank = fork();
  if (rank > 0) stand_before(rank, launcher, passed);
  if (rank == 0) {
    setpgid(0, 0);
    outlive_parent_once_asked();
    if (getppid() != keeper) _exit(static_cast<int>(ExitCode::hang));
    std::signal(SIGPIPE, SIG_IGN);  // nobody reads what a rank says when the launcher has gone
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);  // without a child, as it would be without a shield
}

}  // namespace trireme
