// trireme checkpoint list, verify, diff.
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "train/cli/commands.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct CheckpointListOptions {
  static constexpr auto name = "checkpoint list";
  static constexpr auto about = "Lists the checkpoints of a run";
  std::string run;
  void visit(Options& o) { o("run", run, "A run's directory").required(); }
};

struct CheckpointVerifyOptions {
  static constexpr auto name = "checkpoint verify";
  static constexpr auto about = "Reads every byte against its digests";
  std::string from;
  void visit(Options& o) { o("from", from, "A run's directory, or one checkpoint's").required(); }
};

struct CheckpointDiffOptions {
  static constexpr auto name = "checkpoint diff";
  static constexpr auto about = "Whether two checkpoints hold the same state";
  std::string a, b;
  void visit(Options& o) {
    o("a", a, "A checkpoint, or a run: its newest").required();
    o("b", b, "Another").required();
  }
};

std::string contents(int64_t tensors, int64_t bytes) {
  return text(tensors, " tensors, ", human_bytes(static_cast<double>(bytes)));
}

ExitCode run_checkpoint_list(const CheckpointListOptions& options) {
  const std::vector<CheckpointInfo> found = list_checkpoints(options.run);
  if (found.empty()) throw CheckpointError(options.run + ": holds no checkpoints; name a run's directory");
  for (const CheckpointInfo& checkpoint : found) {
    const std::string about = checkpoint.problem.empty() ? contents(checkpoint.tensors, checkpoint.bytes) : checkpoint.problem;
    say(std::string(text("step ", checkpoint.step, "  ", checkpoint.directory, "  ", about)));
  }
  return ExitCode::done;
}

// Of a run's directory every checkpoint; CheckpointError's code when one is damaged.
ExitCode run_checkpoint_verify(const CheckpointVerifyOptions& options) {
  std::vector<std::string> directories;
  for (const CheckpointInfo& checkpoint : list_checkpoints(options.from)) directories.push_back(checkpoint.directory);
  if (directories.empty()) directories.push_back(options.from);  // one checkpoint, or what is left of it
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

// CheckpointError that says where the states differ. Of a run's directory, its newest checkpoint.
ExitCode run_checkpoint_diff(const CheckpointDiffOptions& options) {
  const std::string first = CheckpointReader(options.a).directory(), second = CheckpointReader(options.b).directory();
  if (const auto difference = diff_checkpoints(first, second))
    throw CheckpointError(text(first, " and ", second, " differ: ", *difference));
  say(std::string(text(first, " and ", second, " hold the same state")));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> checkpoint_list_command() { return make_command<CheckpointListOptions>(run_checkpoint_list); }
std::unique_ptr<Command> checkpoint_verify_command() { return make_command<CheckpointVerifyOptions>(run_checkpoint_verify); }
std::unique_ptr<Command> checkpoint_diff_command() { return make_command<CheckpointDiffOptions>(run_checkpoint_diff); }

}  // namespace trireme
