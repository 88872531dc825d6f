#include "train/health/last_words.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "parallel/world.h"
#include "train/health/fixed_text.h"

namespace trireme {
namespace {

constexpr std::array kFatal{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr std::string_view kNoMemory = "Cannot allocate memory", kNoObject = "std::bad_alloc";
constexpr const char* kMemoryRemedy = ": free memory or raise its limit (ulimit -v, the container's, the job's)";
constexpr const char* kContinues = ", or take a smaller train.microbatch; the same command continues from the newest checkpoint";
constexpr const char* kThreadRemedy =
    "cannot start a thread: raise the limits of processes (ulimit -u, pids.max of the container or job) and memory (ulimit -v), or "
    "lower kernels.threads";
constexpr size_t kReserve = size_t{256} << 10;  // bytes that are freed for the last words
constexpr size_t kProbe = size_t{16} << 20;     // bytes that a process with enough memory can map
constexpr int kErrorOutput = 2;                 // stderr's file descriptor
constexpr unsigned kTimeForWords = 10;          // seconds for the last words
constexpr int kThreadsThatExit = 1024;          // at once, all of a large machine's OpenMP threads

// Facts that handlers read; written while the program is well.
std::atomic<const char*> doing_now = nullptr;
std::atomic<int64_t> step_now = -1;
std::atomic<void*> reserve = nullptr;
std::atomic<int64_t> failed_at = 0;  // time of the last failed allocation that was noted, in nanoseconds
std::atomic<int> speaker = 0;        // thread that ends the process
std::array<char, 2048> run_now{};
std::array<char, 256> host_now{};
std::atomic<int> passed_on = 0;
int rank_now = 0, ranks_now = 1;
alignas(16) std::array<std::byte, 64 << 10> handler_stack;

int thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

void* map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void free_reserve() {
  if (void* const memory = reserve.exchange(nullptr)) munmap(memory, kReserve);
}

void memory_ran_out() {
  note_failed_allocation();
  free_reserve();
  throw std::bad_alloc();
}

// Whether memory is short, as far as a handler can find out: by the error number of the call before, by operator new, by a try.
bool memory_is_short(int error) {
  constexpr int64_t kRecent = 5'000'000'000;
  if (error == ENOMEM) return true;
  if (failed_at != 0 && Clock::now().time_since_epoch().count() - failed_at < kRecent) return true;
  void* const probe = map(kProbe);
  if (probe != nullptr) munmap(probe, kProbe);
  return probe == nullptr;
}

// " while saving, step 12"; before the first fact of a run, "".
void add_doing(FixedText& line) {
  if (doing_now == nullptr) return;
  line.add(" while ").add(doing_now.load());
  if (step_now >= 0) line.add(", step ").add(step_now);
}

void write_exit_file(ExitCode code, const char* cause, std::string_view message) {
  if (run_now[0] == '\0') return;
  FixedText path, staged, json;
  path.add(run_now.data()).add("/exit.json");
  staged.add(path.text()).add(".last-").add(int64_t{getpid()});
  json.add("{\n  \"code\": ").add(static_cast<int64_t>(code)).add(",\n  \"cause\": \"").add(cause).add("\",\n  \"rank\": ");
  json.add(int64_t{rank_now}).add(",\n  \"host\": \"").add_json(host_now.data()).add("\",\n  \"step\": ").add(step_now);
  json.add(",\n  \"message\": \"").add_json(message).add("\"\n}\n");
  const int file = open(staged.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return;
  json.put(file);
  fsync(file), close(file);
  (void)std::rename(staged.c_str(), path.c_str());
}

// Prints the line, after the rank if there are several.
void speak(ExitCode code, const char* cause, const FixedText& line) {
  write_exit_file(code, cause, line.text());
  FixedText whole;
  if (ranks_now > 1) whole.add("[rank ").add(int64_t{rank_now}).add(" on ").add(host_now.data()).add("] ");
  whole.add(line.text()).add("\n").put(kErrorOutput);
}

void add_remedy(FixedText& line) { line.add(kMemoryRemedy).add(doing_now == nullptr ? "" : kContinues); }

// A copy of this process dumps its memory, if a limit allows that, so that this one keeps its exit code.
void leave_core(int signal) {
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_cur == 0) return;
  const pid_t copy = _Fork();  // fork() would wait for locks that this signal may have interrupted
  if (copy == 0) {
    sigset_t all;
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    std::signal(signal, SIG_DFL);
    syscall(SYS_tgkill, getpid(), thread_id(), signal);
    _exit(static_cast<int>(ExitCode::internal));
  }
  if (copy > 0) waitpid(copy, nullptr, 0);
}

// Returns on the first thread that ends the process. Others wait until it has; a second time on the same thread, its words have
// failed.
void become_speaker() {
  int nobody = 0;
  const int me = thread_id();
  if (speaker.compare_exchange_strong(nobody, me)) {
    std::signal(SIGALRM, [](int) { _exit(static_cast<int>(ExitCode::internal)); });
    alarm(kTimeForWords);
    return;
  }
  if (nobody == me) _exit(static_cast<int>(ExitCode::internal));
  for (unsigned second = 0; second <= kTimeForWords; ++second) sleep(1);
  _exit(static_cast<int>(ExitCode::internal));
}

void print_stack(int skipped) {
  std::array<void*, 64> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  if (count > skipped) backtrace_symbols_fd(&frames[static_cast<size_t>(skipped)], count - skipped, kErrorOutput);
}

void crashed(int signal, siginfo_t* info, void*) {
  const int error = errno;
  become_speaker();
  free_reserve();
  FixedText line;
  const char* name = sigabbrev_np(signal);
  const bool memory = memory_is_short(error);
  line.add(memory ? "out of memory" : "crashed");
  add_doing(line);
  line.add(memory ? ": a library did not survive it (SIG" : ": SIG").add(name == nullptr ? "?" : name);
  if (info->si_code <= 0 && signal != SIGABRT)
    line.add(", sent by process ").add(int64_t{info->si_pid});
  else if (signal != SIGABRT)
    line.add(" at address 0x").add(static_cast<int64_t>(reinterpret_cast<uintptr_t>(info->si_addr)), 16);
  if (memory)
    line.add(")"), add_remedy(line);
  else
    line.add(". This is a bug of Trireme or of a library: report it with the stack below");
  speak(ExitCode::internal, memory ? "memory" : "crash", line);
  print_stack(2);
  if (!memory) leave_core(signal);
  _exit(static_cast<int>(ExitCode::internal));
}

bool is_memory(const std::exception& error) {
  const std::string_view what = error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr || what.find(kNoMemory) != std::string_view::npos ||
         what.find(kNoObject) != std::string_view::npos;
}

// An exception that no catch has seen, or a thread that was not joined while memory ran out.
[[noreturn]] void uncaught() {
  const int error = errno;
  become_speaker();
  free_reserve();
  ExitCode code = ExitCode::internal;
  FixedText line;
  bool memory = false;
  try {
    if (const std::exception_ptr now = std::current_exception()) std::rethrow_exception(now);
    memory = memory_is_short(error);
    line.add(memory ? "out of memory" : "std::terminate was called");
    add_doing(line);
  } catch (const std::exception& failure) {
    memory = is_memory(failure);
    if (const auto* known = dynamic_cast<const Error*>(&failure); known != nullptr && !memory) code = known->code();
    line.add(memory ? "out of memory" : "unexpected error in a thread");
    add_doing(line);
    if (!memory) line.add(": ").add(failure.what());
  } catch (...) {
    line.add("unexpected exception");
    add_doing(line);
  }
  if (memory) add_remedy(line);
  speak(code, memory ? "memory" : "error", line);
  if (!memory) print_stack(2), leave_core(SIGABRT);
  _exit(static_cast<int>(code));
}

bool is_ours(int code) {
  constexpr std::array kCodes{ExitCode::done, ExitCode::usage,    ExitCode::data,    ExitCode::checkpoint, ExitCode::internal,
                              ExitCode::hang, ExitCode::numerics, ExitCode::stopped, ExitCode::machine};
  return std::ranges::any_of(kCodes, [&](ExitCode known) { return static_cast<int>(known) == code; });
}

void exited(int code, void*) { judge_exit(code); }

bool is_thread(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
}

}  // namespace

void watch_fatal_ends() {
  std::array<void*, 4> first;
  backtrace(first.data(), static_cast<int>(first.size()));  // the first call loads a library, which a handler must not
  reserve = map(kReserve);
  std::set_new_handler(memory_ran_out);
  std::set_terminate(uncaught);
  // Each thread that calls exit() takes a handler off the list, and one that finds none ends the process with its own code.
  for (int thread = 0; thread < kThreadsThatExit; ++thread) on_exit(exited, nullptr);
  const stack_t stack{.ss_sp = handler_stack.data(), .ss_flags = 0, .ss_size = handler_stack.size()};
  sigaltstack(&stack, nullptr);
  struct sigaction action {
  }, before{};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int signal : kFatal)
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
}

// A library that finds no memory or no thread may call exit() with a code of its own, after a line of its own.
void judge_exit(int code) {
  if (is_ours(code) || code == passed_on) return;
  const int error = errno;
  become_speaker();
  free_reserve();
  FixedText line;
  line.add(error == EAGAIN ? "out of threads" : memory_is_short(error) ? "out of memory" : "out of memory or threads");
  add_doing(line);
  line.add(": a library ended the process with code ").add(int64_t{code}).add(kMemoryRemedy).add("; if it ").add(kThreadRemedy);
  speak(ExitCode::internal, "memory", line);
  _exit(static_cast<int>(ExitCode::internal));
}

void note_passed_on(int code) { passed_on = code; }
void note_failed_allocation() { failed_at = Clock::now().time_since_epoch().count(); }
void note_doing(const char* what) { doing_now = what; }
void note_step(int64_t step) { step_now = step; }
void note_rank(int rank, int ranks) {
  rank_now = rank, ranks_now = ranks;
  std::strncpy(host_now.data(), host_name().c_str(), host_now.size() - 1);
}
void note_run(const std::string& directory) {
  if (directory.size() + 64 < run_now.size()) std::strncpy(run_now.data(), directory.c_str(), run_now.size() - 1);
}

ExitCode code_of(const std::exception& error) {
  if (is_memory(error)) return ExitCode::internal;
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  // A path that no check has named before.
  return dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr ? ExitCode::data : ExitCode::internal;
}

std::string describe_failure(const std::exception& error) {
  const std::string what = error.what();
  if (is_memory(error)) {
    FixedText line;
    add_doing(line.add("out of memory"));
    if (what != kNoObject) line.add(" (").add(what).add(")");
    add_remedy(line);
    return std::string(line.text());
  }
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return file->path1().string() + ": " + file->code().message();
  if (is_thread(error)) return kThreadRemedy;
  return dynamic_cast<const Error*>(&error) != nullptr ? what : "unexpected: " + what;
}

void speak_last_words(const char* cause) noexcept {
  free_reserve();
  FixedText line;
  add_doing(line.add(cause));
  add_remedy(line);
  speak(ExitCode::internal, "memory", line);
}

}  // namespace trireme
