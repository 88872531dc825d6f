#include "base/confined.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/replace_file.h"
#include "base/text_stream.h"

// Defined where a sanitizer watches the program, which needs more of the kernel than the child may ask for.
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}

namespace trireme {

namespace {

constexpr char kResult = 'r', kError = 'e';
// Launchers and terminals send these to all processes of a group. They ask the program to stop: a file is not refused for it.
constexpr std::array kForProgram{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
constexpr auto kLongest = std::chrono::minutes(5);  // a child that waits takes no processor time

bool watched() { return __asan_init != nullptr || __tsan_init != nullptr; }

// The kernel's name of the architecture; 0: one whose calls are not known here.
uint32_t architecture() {
  utsname names{};
  if (uname(&names) != 0) return 0;
  const std::string_view machine = names.machine;
  return machine == "x86_64" ? AUDIT_ARCH_X86_64 : machine == "aarch64" ? AUDIT_ARCH_AARCH64 : 0;
}

bool has_seccomp() { return architecture() != 0 && prctl(PR_GET_SECCOMP) >= 0; }
bool has_landlock() { return syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0; }

// No access to any file, whatever descriptor may be left.
void use_landlock() {
  landlock_ruleset_attr none{};
  none.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;  // all of the first version
  const auto rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &none, sizeof(none.handled_access_fs), 0));
  if (rules < 0) return;
  (void)syscall(SYS_landlock_restrict_self, rules, 0);
  close(rules);
}

// Memory, the pipe and ending. Any other call kills the process.
void use_seccomp() {
  constexpr std::array kAllowed{SYS_read,           SYS_write,     SYS_mmap,          SYS_munmap,          SYS_mremap,
                                SYS_mprotect,       SYS_madvise,   SYS_brk,           SYS_futex,           SYS_exit,
                                SYS_exit_group,     SYS_getpid,    SYS_gettid,        SYS_tgkill,          SYS_rt_sigreturn,
                                SYS_rt_sigprocmask, SYS_getrandom, SYS_clock_gettime, SYS_restart_syscall, SYS_sched_yield};
  std::vector<sock_filter> code{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture(), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long call : kAllowed) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program{.len = static_cast<unsigned short>(code.size()), .filter = code.data()};
  (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// Bytes of address space that this process has; 0: not known.
int64_t address_space() {
  TextReader in(text_of_file("/proc/self/statm", 4096));
  int64_t pages = 0;
  in >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// The child's own part: gives up everything but `pipe`.
void confine(int pipe, pid_t parent, int64_t space, const ConfinedLimits& limits) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (int signal = 1; signal < 32; ++signal) std::signal(signal, SIG_DFL);
  for (const int signal : kForProgram) std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(pipe, 0) != 0 || syscall(SYS_close_range, 1, UINT_MAX, 0) != 0)
    for (int file = sysconf(_SC_OPEN_MAX) > 4096 ? 4096 : static_cast<int>(sysconf(_SC_OPEN_MAX)); file > 0; --file) close(file);
  const auto limit = [](auto what, int64_t soft, int64_t hard) {
    const rlimit both{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
    (void)setrlimit(what, &both);
  };
  limit(RLIMIT_CORE, 0, 0);
  limit(RLIMIT_CPU, limits.seconds, limits.seconds + 1);
  if (space > 0) limit(RLIMIT_AS, space + limits.memory, space + limits.memory);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  use_landlock();
  if (has_seccomp()) use_seccomp();
}

// Length, kind and bytes.
[[noreturn]] void send_result(const std::function<std::string()>& work) {
  std::string result;
  char kind = kError;
  try {
    result = work();
    kind = kResult;
  } catch (const std::bad_alloc&) {
    result = "needs more memory than its reader is given";
  } catch (const std::exception& problem) {
    result = problem.what();
  }
  const uint64_t length = result.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  const bool sent = write_all(0, head + kind) && write_all(0, result);
  _exit(sent ? 0 : 1);
}

// Everything that the child writes until it ends, at most `most` bytes; it is killed at the end of its time.
std::string all_of(int pipe, pid_t child, int64_t most) {
  std::string bytes;
  std::vector<char> part(1 << 16);
  for (const auto end = Clock::now() + kLongest; Clock::now() < end;) {
    pollfd ready{.fd = pipe, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 1000) <= 0) continue;
    const ssize_t count = read(pipe, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || std::ssize(bytes) > most) return bytes;
    bytes.append(part.data(), static_cast<size_t>(count));
  }
  kill(child, SIGKILL);
  return bytes;
}

std::string received(const std::string& name, const std::string& bytes, int status) {
  if (WIFSIGNALED(status))
    throw DataError(
        text(name, ": its reader ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), "): the file is refused"));
  uint64_t length = 0;
  constexpr size_t kHead = sizeof length + 1;
  if (bytes.size() >= kHead) std::memcpy(&length, bytes.data(), sizeof length);
  if (bytes.size() < kHead || length != bytes.size() - kHead)
    throw DataError(text(name, ": its reader ended after ", bytes.size(), " bytes of its result: the file is refused"));
  if (bytes[sizeof length] != kResult) throw DataError(bytes.substr(kHead));
  return bytes.substr(kHead);
}

}  // namespace

std::string run_confined(const std::string& name, const std::function<std::string()>& work, const ConfinedLimits& limits) {
  std::array<int, 2> ends{};
  if (watched() || pipe2(ends.data(), O_CLOEXEC) != 0) return work();
  const int64_t space = address_space();
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    confine(ends[1], parent, space, limits);
    send_result(work);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return work();
  }
  const std::string bytes = all_of(ends[0], child, limits.result);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return received(name, bytes, status);
}

void rehearse(const std::string& name, const std::function<void()>& work) {
  if (!watched()) (void)run_confined(name, [&] { return work(), std::string(); });
}

std::string confinement() {
  if (watched()) return "none under a sanitizer";
  const std::string kernel = has_seccomp()    ? has_landlock() ? "seccomp, landlock, " : "seccomp, "
                             : has_landlock() ? "landlock, "
                                              : "";
  return "a process of its own: " + kernel + "limits of time and memory";
}

}  // namespace trireme
