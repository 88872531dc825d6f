#include "checkpoint/commit_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "parallel/world.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kPoll{20};
constexpr double kPatience = 20;                     // seconds for the command of a run that was asked to stop
constexpr double kTerminating = 5;                   // seconds between SIGTERM and SIGKILL
constexpr int kInput = 0, kOutput = 1, kErrors = 2;  // file descriptors of the command

// Text of an error number of posix_spawn and its kin; "" for 0.
std::string reason_of(int error) { return error == 0 ? "" : strerror(error); }

}  // namespace

CommitCommand::CommitCommand(std::string command, Files files, double timeout)
    : command_(std::move(command)), log_(std::move(files.log)), done_(std::move(files.done)), timeout_(timeout), thread_([this] {
        work();
      }) {}

bool CommitCommand::has_done(int64_t step, const std::string& save) const {
  TextReader in(text_of_file(done_, 256));
  int64_t done = -1;
  std::string of;  // older versions wrote the step alone
  in >> done >> of;
  return step < done || (step == done && (of.empty() || of == save));
}

CommitCommand::~CommitCommand() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommitCommand::start(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (next_)
      warnings_.push_back(text("checkpoint.command did not run for step ", next_->step, ": it is still running for step ",
                               at_work_ ? at_work_->step : next_->step));
    job.directory = std::filesystem::absolute(job.directory);
    next_ = std::move(job);
  }
  changed_.notify_all();
}

bool CommitCommand::needs(int64_t step) {
  const std::lock_guard lock(mutex_);
  return (at_work_ && at_work_->step == step) || (next_ && next_->step == step);
}

void CommitCommand::finish(const std::function<bool()>& hurry) {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return !at_work_ && !next_; };
  for (Clock::time_point asked = Clock::time_point::max(); !changed_.wait_for(lock, kPoll, idle);) {
    if (asked == Clock::time_point::max() && hurry()) asked = Clock::now();
    if (asked == Clock::time_point::max() || seconds_since(asked) < kPatience) continue;
    closing_ = true, next_.reset();
    changed_.notify_all();
    changed_.wait(lock, idle);
    return;
  }
}

std::vector<std::string> CommitCommand::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

void CommitCommand::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return next_ || closing_; });
    if (closing_) return;
    at_work_ = std::exchange(next_, std::nullopt);
    lock.unlock();
    const std::string problem = run(*at_work_);
    if (problem.empty()) std::ofstream(done_, std::ios::trunc) << at_work_->step << ' ' << at_work_->save << std::endl;
    lock.lock();
    if (!problem.empty())
      warnings_.push_back(text("checkpoint.command failed for step ", at_work_->step, ": ", problem, "; see ", log_));
    at_work_.reset();
    changed_.notify_all();
  }
}

// Started by /bin/sh as a member of `group`, 0 for a group of its own.
pid_t CommitCommand::spawn(const std::string& script, pid_t group, int input, const std::vector<std::string>& variables) {
  std::vector<std::string> all = environment_outside_launcher();  // else `trireme eval` would take itself for a rank of this run
  all.insert(all.end(), variables.begin(), variables.end());
  std::vector<char*> environment;
  for (std::string& variable : all) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string shell = "sh", option = "-c", command = script;
  char* const words[] = {shell.data(), option.data(), command.data(), nullptr};

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  if (input < 0) posix_spawn_file_actions_addopen(&files, kInput, "/dev/null", O_RDONLY, 0);
  if (input >= 0) posix_spawn_file_actions_adddup2(&files, input, kInput);
  posix_spawn_file_actions_addopen(&files, kOutput, log_.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0666);
  posix_spawn_file_actions_adddup2(&files, kOutput, kErrors);
  posix_spawnattr_setpgroup(&attributes, group);
  sigset_t ignored;  // by ranks under mpirun
  sigemptyset(&ignored), sigaddset(&ignored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);  // a terminal's signals do not reach it
  pid_t child = 0;
  errno = posix_spawn(&child, "/bin/sh", &files, &attributes, words, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return errno == 0 ? child : -1;
}

bool CommitCommand::closing_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return closing_; });
}

// The problem of the command that leads this group, or "".
std::string CommitCommand::wait_for(pid_t group) {
  const auto begin = Clock::now();
  std::string why;  // it is being ended
  double end = timeout_ > 0 ? timeout_ : std::numeric_limits<double>::infinity();
  for (int status = 0;;) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(group), &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != EINTR) return reason_of(errno);
    if (info.si_pid == group) {
      if (!why.empty()) kill(-group, SIGKILL);  // whoever of the group ignores SIGTERM
      waitpid(group, &status, 0);
      if (!why.empty()) return why;
      if (WIFSIGNALED(status)) return text("ended by signal ", WTERMSIG(status));
      return WEXITSTATUS(status) == 0 ? "" : std::string(text("exit code ", WEXITSTATUS(status)));
    }
    const bool closing = closing_within(kPoll);
    if (why.empty() && (closing || seconds_since(begin) >= end)) {
      why = closing ? std::string("ended, since the run ends")
                    : std::string(text("ended after checkpoint.command_timeout = ", timeout_, " s"));
      end = seconds_since(begin) + kTerminating;
      kill(-group, SIGTERM);
    } else if (!why.empty() && seconds_since(begin) >= end) {
      kill(-group, SIGKILL);
    }
    if (closing) std::this_thread::sleep_for(kPoll);  // closing_within() waits no more
  }
}

std::string CommitCommand::run(const Job& job) {
  std::array<int, 2> alive{-1, -1}, begin{-1, -1};
  if (pipe2(alive.data(), O_CLOEXEC) != 0) return reason_of(errno);
  if (pipe2(begin.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    close(alive[0]), close(alive[1]);
    return reason_of(error);
  }
  // Reads a line before all else, which comes once its watcher is there: it never runs without.
  const pid_t group = spawn("read trireme_begin || exit 1; unset trireme_begin; exec < /dev/null; " + command_, 0, begin[0],
                            {"TRIREME_RUN=" + std::filesystem::absolute(log_).parent_path().string(),
                             "TRIREME_CHECKPOINT=" + job.directory, "TRIREME_STEP=" + std::to_string(job.step)});
  // Another member of the group waits for the pipe to close, as it does when this process ends, and then ends them all.
  const pid_t watcher = group > 0 ? spawn("read x; kill -KILL 0", group, alive[0], {}) : -1;
  std::string problem;
  const bool there = std::filesystem::exists(job.directory);  // no other job has taken over meanwhile
  if (watcher > 0 && there && write(begin[1], "\n", 1) == 1) {
    problem = wait_for(group);
  } else {
    problem = there ? reason_of(errno) : job.directory + " is gone";
    if (group > 0) kill(-group, SIGKILL), waitpid(group, nullptr, 0);
  }
  if (watcher > 0) kill(watcher, SIGKILL), waitpid(watcher, nullptr, 0);
  for (const int end : {alive[0], alive[1], begin[0], begin[1]}) close(end);
  return problem;
}

}  // namespace trireme
