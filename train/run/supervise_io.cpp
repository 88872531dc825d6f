#include "train/run/supervise_io.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process_state.h"
#include "base/replace_file.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/problem.h"
#include "checkpoint/reader.h"
#include "train/health/signals.h"
#include "train/run/launched_training.h"
#include "train/run/output_relay.h"
#include "train/telemetry/exit_facts.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Which file of this name stands there now; {} if none does.
std::pair<uint64_t, int64_t> identity_of(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_ino, int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

constexpr std::array kEndsOfMpirun{SIGTERM, SIGINT, SIGHUP};  // it would end its ranks before they have saved

// In a group of its own, so that a terminal's signals reach this process alone, which passes them on; dies with its parent. An
// mpirun blocks the signals by which it would end its ranks at once: so they wait until processes_of() sees them.
pid_t start_process(const std::vector<std::string>& words, OutputRelay& relay) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  sigset_t all, before, childs;  // a request must not end in a handler of the copy that is about to become the command
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  childs = before;
  if (is_mpirun(words.front()))
    for (const int signal : kEndsOfMpirun) sigaddset(&childs, signal);
  const pid_t parent = getpid(), child = fork();
  const int reason = errno;
  if (child == 0) forget_signals();
  pthread_sigmask(SIG_SETMASK, child == 0 ? &childs : &before, nullptr);
  require(child >= 0, text("cannot start ", words.front(), ": ", strerror(reason)));
  if (child != 0) return relay.begin(), child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  relay.become_output();
  if (getppid() == parent) execvp(argv[0], argv.data());
  _exit(127);
}

std::optional<int> ended_process(pid_t process) {
  int status = 0;
  const pid_t ended = waitpid(process, &status, WNOHANG);
  if (ended == process) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  require(ended == 0 || errno == EINTR, text("waitpid: ", strerror(errno)));
  return std::nullopt;
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

// How often the process's threads have left a processor, by themselves or not.
uint64_t times_scheduled(pid_t process) {
  uint64_t times = 0;
  std::error_code error;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (const size_t at = line.find("ctxt_switches:"); at != std::string::npos) times += std::stoull(line.substr(at + 14));
  }
  return times;
}

// Name of a process's program; "" if it is gone.
std::string program_of(const std::string& process) {
  std::error_code error;
  return fs::read_symlink("/proc/" + process + "/exe", error).filename();
}

// True if a signal that mpirun blocks was sent to it. Under nohup, SIGHUP means nothing.
bool was_told_to_end(pid_t mpirun) {
  std::ifstream status("/proc/" + std::to_string(mpirun) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("ShdPnd:")) continue;
    const uint64_t pending = std::stoull(line.substr(line.find(':') + 1), nullptr, 16);
    return std::ranges::any_of(
        kEndsOfMpirun, [&](int signal) { return (pending >> (signal - 1) & 1) != 0 && (signal != SIGHUP || !is_ignored(SIGHUP)); });
  }
  return false;
}

// Adds the descendants that run the program. Whatever else launchers start, such as shells, only waits for them; a script may be
// the launcher of an mpirun.
void add_ranks(pid_t process, const std::string& program, RunProcesses& found) {
  const ProcessState state = state_of_process(process);
  if (!state.dead() && program_of(std::to_string(process)).starts_with(program)) {
    found.ranks.push_back(process);
    found.traced |= state.letter == 't';
    found.scheduled += times_scheduled(process);
  }
  found.told_to_end |= is_mpirun(program_of(std::to_string(process))) && was_told_to_end(process);
  for (const pid_t child : children_of(process)) add_ranks(child, program, found);
}

RunProcesses processes_of(pid_t launcher) {
  RunProcesses found{.told_to_end = was_told_to_end(launcher)};
  for (const pid_t child : children_of(launcher)) {
    found.any = true;
    found.alive |= !state_of_process(child).dead();
  }
  add_ranks(launcher, program_of("self"), found);
  return found;
}

ExitRecord exit_record(const std::string& path) {
  const ExitFacts exit = recorded_exit(path).value_or(ExitFacts{});
  return {.identity = identity_of(path),
          .code = exit.code,
          .rank = exit.rank,
          .step = exit.step,
          .cause = exit.cause,
          .host = exit.host,
          .message = exit.message};
}

// The last step of the complete lines at the end of metrics.jsonl; -1 if there is none.
int64_t last_step_of(const std::string& path) {
  constexpr std::streamoff kEnd = 64 << 10;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return -1;
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kEnd));
  const std::string end{std::istreambuf_iterator<char>(in), {}};
  int64_t last = -1;
  for (size_t begin = 0, stop = 0; (stop = end.find('\n', begin)) != std::string::npos; begin = stop + 1) {
    if (const Json entry = Json::parse_or_null(end.substr(begin, stop - begin)); entry.is_object()) {
      const int64_t step = entry.value("step", int64_t{-1});
      last = std::max(last, step);
    }
  }
  return last;
}

RunFiles files_of(const std::string& run) {
  const std::string metrics = run + "/metrics.jsonl";
  RunFiles files{.newest_checkpoint = newest_checkpoint(run)};
  const std::string problem = problem_of([&] {
    files.exit = exit_record(run + "/exit.json");
    files.metrics = identity_of(metrics);
    files.last_step = last_step_of(metrics);
  });
  if (!problem.empty()) complain("supervise: " + problem);
  return files;
}

void record_attempt(const std::string& run, const Attempt& attempt) {
  std::error_code error;
  if (attempt.code == static_cast<int>(ExitCode::stopped) && !fs::exists(run, error)) return;  // stopped before it was a run
  fs::create_directories(run, error);
  std::ofstream(run + "/attempts.jsonl", std::ios::app) << json_line(attempt);
}

}  // namespace

// A disk that refuses a look at the moment ends no supervision: what was seen counts.
int64_t newest_checkpoint(const std::string& run) {
  int64_t newest = -1;
  const std::string problem = problem_of([&] {
    newest = newest_in_memory(run);
    for (const CheckpointInfo& checkpoint : list_checkpoints(run))
      if (checkpoint.problem.empty()) newest = std::max(newest, checkpoint.step);
  });
  if (!problem.empty()) complain("warning: " + problem);
  return newest;
}

SuperviseIo::SuperviseIo(std::list<OutputRelay>& relays)
    : start([&relays](const std::vector<std::string>& words) {
        relays.emplace_back();
        return start_process(words, relays.back());
      }),
      ended(ended_process),
      send([](pid_t process, int signal) { kill(process, signal); }),
      processes(processes_of),
      heard([&relays](pid_t) { return relays.empty() ? std::string() : relays.back().heard(); }),
      files(files_of),
      record(record_attempt),
      say([](const std::string& line) { complain(line); }),
      stop_signal(trireme::stop_signal),
      read([](const std::string& path) { return text_of_file(path, 1 << 20); }),
      write([](const std::string& path, const std::string& text) {
        std::error_code error;
        fs::create_directories(fs::path(path).parent_path(), error);
        return replace_file_durably(path, text);
      }),
      utc(utc_now),
      now(Clock::now),
      sleep([](Clock::duration time) { std::this_thread::sleep_for(time); }) {}

}  // namespace trireme
