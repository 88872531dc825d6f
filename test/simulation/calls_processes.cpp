// The C library's calls on processes, signals and the environment, for this whole program: those of
// simulated threads end in the World.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "test/simulation/files.h"
#include "test/simulation/job.h"
#include "test/simulation/next.h"
#include "test/simulation/world.h"

using namespace trireme::simulation;

extern "C" {

pid_t getpid() noexcept {
  static const Next<pid_t()> real("getpid");
  // As in containers: each has the same numbers.
  return simulated() == nullptr ? real.call() : static_cast<pid_t>(simulated()->self().rank + 7);
}
pid_t getppid() noexcept {
  static const Next<pid_t()> real("getppid");
  if (simulated() == nullptr) return real.call();
  const Process* const parent = simulated()->self().parent;
  return parent == nullptr ? 1 : parent->id;
}
pid_t gettid() noexcept { return getpid(); }
int setpriority(__priority_which_t which, id_t who, int priority) noexcept {
  static const Next<int(__priority_which_t, id_t, int)> real("setpriority");
  return simulated() == nullptr ? real.call(which, who, priority) : 0;
}
int gethostname(char* name, size_t size) noexcept {
  static const Next<int(char*, size_t)> real("gethostname");
  if (simulated() == nullptr) return real.call(name, size);
  const std::string host = "node" + std::to_string(simulated()->self().node);
  std::strncpy(name, host.c_str(), size);
  return 0;
}

char* getenv(const char* name) noexcept {
  static const Next<char*(const char*)> real("getenv");
  if (simulated() == nullptr) return real.call(name);
  const Unowned unowned;
  auto& variables = simulated()->self().environment;
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.data();
}
int setenv(const char* name, const char* value, int replace) noexcept {
  static const Next<int(const char*, const char*, int)> real("setenv");
  if (simulated() == nullptr) return real.call(name, value, replace);
  const Unowned unowned;
  auto& variables = simulated()->self().environment;
  if (replace != 0 || !variables.contains(name)) variables[name] = value;
  return 0;
}

int kill(pid_t id, int signal) noexcept {
  static const Next<int(pid_t, int)> real("kill");
  if (simulated() == nullptr) return real.call(id, signal);
  const Call call("kill");
  bool any = false;
  for (const auto& process : call->processes()) {
    if (process->dead || (id > 0 ? process->id != id : process->group != -id)) continue;
    any = true;
    call->send(*process, signal);
  }
  return any ? 0 : call.error(ESRCH);
}
int raise(int signal) noexcept {
  static const Next<int(int)> real("raise");
  if (simulated() == nullptr) return real.call(signal);
  simulated()->send(simulated()->self(), signal);
  return 0;
}
int sigaction(int signal, const struct sigaction* now, struct sigaction* before) noexcept {
  static const Next<int(int, const struct sigaction*, struct sigaction*)> real("sigaction");
  if (simulated() == nullptr) return real.call(signal, now, before);
  auto& handler = simulated()->self().handlers[signal];
  if (before != nullptr) *before = {}, before->sa_handler = handler;
  if (now != nullptr) handler = now->sa_handler;
  return 0;
}
sighandler_t signal(int signal, sighandler_t handler) noexcept {
  static const Next<sighandler_t(int, sighandler_t)> real("signal");
  if (simulated() == nullptr) return real.call(signal, handler);
  return std::exchange(simulated()->self().handlers[signal], handler);
}

pid_t waitpid(pid_t id, int* status, int flags) {
  static const Next<pid_t(pid_t, int*, int)> real("waitpid");
  if (simulated() == nullptr) return real.call(id, status, flags);
  const Call call("waitpid");
  Process* const child = call->find(id);
  if (child == nullptr || child->reaped) return call.error(ECHILD);
  while (!child->dead) {
    if ((flags & WNOHANG) != 0) return 0;
    (void)call->wait(&call.process());
  }
  child->reaped = true;
  if (status != nullptr) *status = child->status;
  return id;
}

int posix_spawn(pid_t* id, const char* path, const posix_spawn_file_actions_t* files, const posix_spawnattr_t* attributes,
                char* const words[], char* const variables[]) {
  static const Next<int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[],
                        char* const[])>
      real("posix_spawn");
  if (simulated() == nullptr) return real.call(id, path, files, attributes, words, variables);
  Call call("posix_spawn");
  if (call.fails(true)) return EAGAIN;
  pid_t group = 0;
  posix_spawnattr_getpgroup(attributes, &group);
  *id = start_command(*simulated(), group, variables).id;
  return 0;
}

int waitid(idtype_t kind, id_t id, siginfo_t* info, int flags) {
  static const Next<int(idtype_t, id_t, siginfo_t*, int)> real("waitid");
  if (simulated() == nullptr) return real.call(kind, id, info, flags);
  const Call call("waitid");
  const Process* const child = call->find(static_cast<int>(id));
  if (child == nullptr || child->reaped) return call.error(ECHILD);
  info->si_pid = child->dead ? child->id : 0;
  return 0;
}

// Ends that only close: the command's watcher knows by other means when the other end has gone.
int pipe2(int ends[2], int flags) noexcept {
  static const Next<int(int*, int)> real("pipe2");
  if (simulated() == nullptr) return real.call(ends, flags);
  Call call("pipe2");
  if (call.fails(false)) return -1;
  for (int end : {0, 1}) ends[end] = open_file(call, AT_FDCWD, "/dev/null", O_RDWR);
  return 0;
}

int prctl(int option, ...) noexcept {
  static const Next<int(int, ...)> real("prctl");
  va_list rest;
  va_start(rest, option);
  unsigned long words[4];
  for (unsigned long& word : words) word = va_arg(rest, unsigned long);
  va_end(rest);
  return simulated() == nullptr ? real.call(option, words[0], words[1], words[2], words[3]) : 0;
}

void _exit(int code) {
  static const Next<void(int)> real("_exit");
  if (simulated() != nullptr) simulated()->exit(code);
  real.call(code);
  __builtin_unreachable();
}
void _Exit(int code) noexcept { _exit(code); }
}

// std::random_device: its numbers, and its construction, which asks the processor for its abilities.
unsigned random_number(void*) asm("_ZNSt13random_device9_M_getvalEv");
unsigned random_number(void* device) {
  static const Next<unsigned(void*)> real("_ZNSt13random_device9_M_getvalEv");
  return simulated() == nullptr ? real.call(device) : static_cast<unsigned>(simulated()->random.next());
}
void begin_random(void*,
                  const std::string&) asm("_ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
void begin_random(void* device, const std::string& kind) {
  static const Next<void(void*, const std::string&)> real(
      "_ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  if (simulated() == nullptr) real.call(device, kind);
}
void end_random(void*) asm("_ZNSt13random_device7_M_finiEv");
void end_random(void* device) {
  static const Next<void(void*)> real("_ZNSt13random_device7_M_finiEv");
  if (simulated() == nullptr) real.call(device);
}
