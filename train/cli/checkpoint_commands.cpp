// trireme checkpoint list, verify, diff.
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/run/record_check.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct CheckpointListOptions {
  static constexpr auto name = "checkpoint list";
  static constexpr auto about = "List the checkpoints of a run";
  std::string run, json;
  void visit(Options& o) {
    o("run", run, "Directory of a run").required();
    o.json(json);
  }
};

struct CheckpointVerifyOptions {
  static constexpr auto name = "checkpoint verify";
  static constexpr auto about = "Read every byte of checkpoints and check it against its digest";
  std::string from, json;
  void visit(Options& o) {
    o("from", from, "Directory of a run or of one checkpoint").required();
    o.json(json);
  }
};

struct CheckpointDiffOptions {
  static constexpr auto name = "checkpoint diff";
  static constexpr auto about = "Compare the state of two checkpoints";
  std::string a, b, json;
  void visit(Options& o) {
    o("a", a, "Directory of a checkpoint, or of a run for its newest one").required();
    o("b", b, "Directory of the other, likewise").required();
    o.json(json);
  }
};

std::string contents(int64_t tensors, int64_t bytes) {
  return text(tensors, " tensors, ", human_bytes(static_cast<double>(bytes)));
}

// Returns null for an empty text.
Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

ExitCode run_checkpoint_list(const CheckpointListOptions& options) {
  JsonOutput json(options.json);
  const std::vector<CheckpointInfo> found = list_checkpoints(options.run);
  if (found.empty()) throw CheckpointError(options.run + ": holds no checkpoints; name a run's directory");
  Json all = Json::array();
  for (const CheckpointInfo& checkpoint : found) {
    all.push_back({{"step", checkpoint.step},
                   {"directory", checkpoint.directory},
                   {"tensors", checkpoint.tensors},
                   {"bytes", checkpoint.bytes},
                   {"problem", text_or_null(checkpoint.problem)}});
    const std::string about = checkpoint.problem.empty() ? contents(checkpoint.tensors, checkpoint.bytes) : checkpoint.problem;
    say(std::string(text("step ", checkpoint.step, "  ", checkpoint.directory, "  ", about)));
  }
  json.write({{"checkpoints", all}});
  return ExitCode::done;
}

// Verifies one checkpoint, or every one of a run and its records. Returns CheckpointError's code when one is damaged.
ExitCode run_checkpoint_verify(const CheckpointVerifyOptions& options) {
  JsonOutput json(options.json);
  std::vector<std::string> directories;
  for (const CheckpointInfo& checkpoint : list_checkpoints(options.from)) directories.push_back(checkpoint.directory);
  if (directories.empty()) directories.push_back(options.from);  // one checkpoint, even a damaged one
  Json all = Json::array();
  int damaged = 0;
  for (const std::string& directory : directories) {
    try {
      const Verified whole = verify_checkpoint(directory);
      say(std::string(
          text("step ", whole.step, "  ", directory, "  whole: ", contents(whole.tensors, whole.bytes), ", state ", whole.digest)));
      all.push_back({{"directory", directory},
                     {"undamaged", true},
                     {"step", whole.step},
                     {"tensors", whole.tensors},
                     {"bytes", whole.bytes},
                     {"state_digest", whole.digest},
                     {"problem", nullptr}});
    } catch (const DamagedCheckpoint& e) {  // the others are still verified
      complain(e.what());
      all.push_back({{"directory", directory}, {"undamaged", false}, {"problem", e.what()}});
      ++damaged;
    }
  }
  Json records = Json::array();
  if (checkpoints_of(options.from) != options.from)
    for (const CheckedRecord& record : check_records(options.from)) {
      if (record.problem.empty())
        say(std::string(
            text(record.path, "  whole: ", human_bytes(static_cast<double>(record.bytes)), " up to step ", record.step)));
      else
        complain(record.problem);
      records.push_back({{"path", record.path},
                         {"undamaged", record.problem.empty()},
                         {"step", record.step},
                         {"bytes", record.bytes},
                         {"problem", text_or_null(record.problem)}});
      damaged += record.problem.empty() ? 0 : 1;
    }
  json.write({{"checkpoints", all}, {"records", records}});
  return damaged == 0 ? ExitCode::done : ExitCode::checkpoint;
}

// Throws CheckpointError with the place where the states differ.
ExitCode run_checkpoint_diff(const CheckpointDiffOptions& options) {
  JsonOutput json(options.json);
  const std::string first = CheckpointReader(options.a).directory(), second = CheckpointReader(options.b).directory();
  const auto difference = diff_checkpoints(first, second);
  json.write({{"a", first}, {"b", second}, {"same", !difference}, {"difference", text_or_null(difference.value_or(""))}});
  if (difference) throw CheckpointError(text(first, " and ", second, " differ: ", *difference));
  say(std::string(text(first, " and ", second, " hold the same state")));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> checkpoint_list_command() { return make_command<CheckpointListOptions>(run_checkpoint_list); }
std::unique_ptr<Command> checkpoint_verify_command() { return make_command<CheckpointVerifyOptions>(run_checkpoint_verify); }
std::unique_ptr<Command> checkpoint_diff_command() { return make_command<CheckpointDiffOptions>(run_checkpoint_diff); }

}  // namespace trireme
