// trireme checkpoint list, verify, diff.
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "train/cli/commands.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

std::string contents(int64_t tensors, int64_t bytes) {
  return text(tensors, " tensors, ", human_bytes(static_cast<double>(bytes)));
}

}  // namespace

ExitCode run_checkpoint_list(const std::string& run) {
  const std::vector<CheckpointInfo> found = list_checkpoints(run);
  if (found.empty()) throw CheckpointError(run + ": holds no checkpoints; name a run's directory");
  for (const CheckpointInfo& checkpoint : found) {
    const std::string about = checkpoint.problem.empty() ? contents(checkpoint.tensors, checkpoint.bytes) : checkpoint.problem;
    say(std::string(text("step ", checkpoint.step, "  ", checkpoint.directory, "  ", about)));
  }
  return ExitCode::done;
}

ExitCode run_checkpoint_verify(const std::string& from) {
  std::vector<std::string> directories;
  for (const CheckpointInfo& checkpoint : list_checkpoints(from)) directories.push_back(checkpoint.directory);
  if (directories.empty()) directories.push_back(from);  // one checkpoint, or what is left of it
  int damaged = 0;
  for (const std::string& directory : directories) {
    try {
      const Verified whole = verify_checkpoint(directory);
      say(std::string(
          text("step ", whole.step, "  ", directory, "  whole: ", contents(whole.tensors, whole.bytes), ", state ", whole.digest)));
    } catch (const DamagedCheckpoint& e) {  // the others are still looked at
      complain(e.what());
      ++damaged;
    }
  }
  return damaged == 0 ? ExitCode::done : ExitCode::checkpoint;
}

ExitCode run_checkpoint_diff(const std::string& a, const std::string& b) {
  const std::string first = CheckpointReader(a).directory(), second = CheckpointReader(b).directory();
  if (const auto difference = diff_checkpoints(first, second))
    throw CheckpointError(text(first, " and ", second, " differ: ", *difference));
  say(std::string(text(first, " and ", second, " hold the same state")));
  return ExitCode::done;
}

}  // namespace trireme
