#include "checkpoint/commit_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "parallel/world.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kPoll{20};
constexpr int kInput = 0, kOutput = 1, kErrors = 2;  // file descriptors of the command

// Text of an error number of posix_spawn and its kin; "" for 0.
std::string reason_of(int error) { return error == 0 ? "" : strerror(error); }

}  // namespace

CommitCommand::CommitCommand(std::string command, std::string log, std::string done)
    : command_(std::move(command)), log_(std::move(log)), done_(std::move(done)), thread_([this] { work(); }) {}

int64_t CommitCommand::last_done() const {
  std::istringstream in(text_of_file(done_, 64));
  int64_t step = -1;
  return in >> step ? step : -1;
}

CommitCommand::~CommitCommand() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommitCommand::start(int64_t step, const std::string& directory) {
  {
    const std::lock_guard lock(mutex_);
    if (next_)
      warnings_.push_back(text("checkpoint.command did not run for step ", next_->step, ": it is still running for step ",
                               at_work_ ? at_work_->step : next_->step));
    next_ = Job{.step = step, .directory = std::filesystem::absolute(directory)};
  }
  changed_.notify_all();
}

bool CommitCommand::needs(int64_t step) {
  const std::lock_guard lock(mutex_);
  return (at_work_ && at_work_->step == step) || (next_ && next_->step == step);
}

void CommitCommand::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !at_work_ && !next_; });
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
    if (problem.empty()) std::ofstream(done_, std::ios::trunc) << at_work_->step << std::endl;
    lock.lock();
    if (!problem.empty())
      warnings_.push_back(text("checkpoint.command failed for step ", at_work_->step, ": ", problem, "; see ", log_));
    at_work_.reset();
    changed_.notify_all();
  }
}

std::string CommitCommand::run(const Job& job) {
  std::vector<std::string> variables{"TRIREME_CHECKPOINT=" + job.directory, "TRIREME_STEP=" + std::to_string(job.step)};
  std::vector<char*> environment;
  for (char** variable = environment_block(); *variable != nullptr; ++variable) environment.push_back(*variable);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string shell = "sh", option = "-c", command = command_;
  char* const words[] = {shell.data(), option.data(), command.data(), nullptr};

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, kInput, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, kOutput, log_.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0666);
  posix_spawn_file_actions_adddup2(&files, kOutput, kErrors);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a terminal's signals do not reach it
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", &files, &attributes, words, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return reason_of(error);

  for (int status = 0;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child && WIFSIGNALED(status)) return text("ended by signal ", WTERMSIG(status));
    if (ended == child) return WEXITSTATUS(status) == 0 ? "" : std::string(text("exit code ", WEXITSTATUS(status)));
    if (ended < 0 && errno != EINTR) return reason_of(errno);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kPoll, [&] { return closing_; })) return "left alone";
  }
}

}  // namespace trireme
