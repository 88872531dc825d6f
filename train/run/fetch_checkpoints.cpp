#include "train/run/fetch_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "checkpoint/problem.h"
#include "checkpoint/reader.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 5;
constexpr auto kFetchPoll = std::chrono::milliseconds(20);

// Committed checkpoints of a run on disk: the newest step, -1: none; and why another one cannot be used.
struct OnDisk {
  int64_t newest = -1;
  std::string problem{};
};

OnDisk on_disk(const std::string& run) {
  OnDisk found;
  const std::string problem = problem_of([&] {
    for (const CheckpointInfo& checkpoint : list_checkpoints(run)) {
      if (checkpoint.problem.empty()) found.newest = std::max(found.newest, checkpoint.step);
      if (!checkpoint.problem.empty()) found.problem = checkpoint.directory + ": " + checkpoint.problem;
    }
  });
  if (found.problem.empty()) found.problem = problem;
  return found;
}

// Exit code of the command; 128 + n when signal n ended it. A request to stop ends its process group.
int run_command(const SuperviseIo& io, const std::string& command, const std::string& run) {
  const std::string directory = fs::absolute(run).lexically_normal();
  const pid_t child = io.start({"env", "TRIREME_RUN=" + directory, "sh", "-c", command});
  for (bool asked = false;; io.sleep(kFetchPoll)) {
    if (const std::optional<int> code = io.ended(child)) return *code;
    if (io.stop_signal() != 0 && !asked) io.send(-child, SIGTERM), asked = true;
  }
}

// Waits; false after a request to stop.
bool pause(const SuperviseIo& io, std::chrono::seconds time) {
  for (const auto begin = io.now(); io.stop_signal() == 0 && io.now() - begin < time;) io.sleep(kFetchPoll);
  return io.stop_signal() == 0;
}

// One try; "" if it has fetched, or nothing was there to fetch.
std::string problem_of_fetch(const SuperviseIo& io, const std::string& command, const std::string& run) {
  const int code = run_command(io, command, run);
  if (code != 0) return text("--fetch ended with ", code);
  const OnDisk found = on_disk(run);
  if (found.newest >= 0)
    io.say(text("supervise: fetched step ", found.newest, " into ", run));
  else if (found.problem.empty())
    io.say("supervise: --fetch found no checkpoint: the run begins");
  else
    return "--fetch brought no checkpoint that can be used: " + found.problem;
  return "";
}

}  // namespace

std::optional<ExitCode> fetch_if_empty(const SuperviseIo& io, const std::string& command, const std::string& run) {
  // There from before the command begins until it has succeeded: a part of what was uploaded must not pass for all.
  const std::string mark = run + "/fetching";
  std::error_code error;
  if (command.empty() || (!fs::exists(mark, error) && on_disk(run).newest >= 0)) return std::nullopt;
  fs::create_directories(run, error);
  if (!(std::ofstream(mark) << "trireme supervise --fetch has begun and not ended\n").flush()) {
    io.say("supervise: --fetch: cannot write into " + run + ": mount it, or free space");
    return ExitCode::checkpoint;
  }
  for (int tries = 1;; ++tries) {
    const std::string problem = problem_of_fetch(io, command, run);
    if (io.stop_signal() != 0) return ExitCode::stopped;
    if (problem.empty()) break;
    if (tries == kTries) {
      io.say(text("supervise: gave up: ", problem, ", ", kTries,
                  " times. The run was not begun anew, which would lose the uploaded "
                  "checkpoints: repair the command, or leave out --fetch if nothing was uploaded"));
      return ExitCode::checkpoint;
    }
    const std::chrono::seconds wait(int64_t{1} << (tries - 1));
    io.say(text("supervise: ", problem, "; try ", tries + 1, " of ", kTries, " in ", wait.count(), " s"));
    if (!pause(io, wait)) return ExitCode::stopped;
  }
  fs::remove(mark, error);
  return std::nullopt;
}

}  // namespace trireme
