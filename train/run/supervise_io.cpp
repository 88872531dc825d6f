#include "train/run/supervise_io.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/reader.h"
#include "train/health/signals.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

// In a group of its own, so that a terminal's signals reach this process alone, which passes them on; dies with its parent.
pid_t start_process(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  require(child >= 0, text("cannot start ", words.front(), ": ", strerror(errno)));
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
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

RunProcesses processes_of(pid_t launcher) {
  RunProcesses found;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(launcher) + "/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream in("/proc/" + std::to_string(child) + "/stat");
      std::string stat;
      std::getline(in, stat);
      const size_t name_end = stat.rfind(") ");
      found.any = true;
      found.alive |= name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
    }
  }
  return found;
}

ExitRecord exit_record(const std::string& path) {
  ExitRecord record;
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return record;
  record.identity = {facts.st_ino, int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
  const Json exit = Json::parse_or_null(text_of_file(path, 1 << 20));
  if (!exit.is_object()) return record;
  record.code = exit.value("code", int64_t{-1});
  record.cause = exit.value("cause", "");
  record.message = exit.value("message", "");
  record.host = exit.value("host", "");
  record.rank = exit.value("rank", int64_t{-1});
  record.step = exit.value("step", int64_t{-1});
  return record;
}

RunFiles files_of(const std::string& run) {
  return {.newest_checkpoint = newest_checkpoint(run), .exit = exit_record(run + "/exit.json")};
}

void record_attempt(const std::string& run, const Attempt& attempt) {
  std::error_code error;
  std::filesystem::create_directories(run, error);
  std::ofstream(run + "/attempts.jsonl", std::ios::app) << json_line(attempt);
}

}  // namespace

int64_t newest_checkpoint(const std::string& run) {
  int64_t newest = newest_in_memory(run);
  for (const CheckpointInfo& checkpoint : list_checkpoints(run))
    if (checkpoint.problem.empty()) newest = std::max(newest, checkpoint.step);
  return newest;
}

SuperviseIo::SuperviseIo()
    : start(start_process),
      ended(ended_process),
      send([](pid_t process, int signal) { kill(process, signal); }),
      processes(processes_of),
      files(files_of),
      record(record_attempt),
      say([](const std::string& line) { complain(line); }),
      stop_signal(trireme::stop_signal),
      utc(utc_now),
      now(Clock::now),
      sleep([](Clock::duration time) { std::this_thread::sleep_for(time); }) {}

}  // namespace trireme
