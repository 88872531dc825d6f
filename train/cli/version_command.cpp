// trireme version, help.
#include "base/build_facts.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct VersionOptions {
  static constexpr auto name = "version";
  static constexpr auto about = "Print version, commit, back-ends and compiler";
  std::string json;
  void visit(Options& o) { o.json(json); }
};

// parse_command_line() prints the help.
struct HelpOptions {
  static constexpr auto name = "help";
  static constexpr auto about = "Print the help of a command, as --help after it does";
  std::vector<std::string> command;
  void visit(Options& o) { o("command", command, "Words of a command, such as: data build; default: all commands").rest(); }
};

std::string described_commit(const BuildFacts& facts) {
  if (facts.commit_date.empty()) return "commit unknown";
  return "commit " + facts.commit.substr(0, 12) + " of " + facts.commit_date + (facts.changed ? ", with changes" : "");
}

std::string back_ends(const BuildFacts& facts) {
  const std::string cpu = "CPU (" + facts.processor + "), MPI";
  if (facts.cuda.empty()) return cpu + "; built without CUDA";
  return cpu + ", CUDA " + facts.cuda + (facts.nccl ? ", NCCL" : ", no NCCL") + (facts.cudnn ? ", cuDNN" : ", no cuDNN");
}

Json json_of(const BuildFacts& facts) {
  const auto known = [](const std::string& text, bool is) { return is ? Json(text) : Json(); };
  return {{"version", facts.version},
          {"commit", known(facts.commit, !facts.commit_date.empty())},
          {"commit_date", known(facts.commit_date, !facts.commit_date.empty())},
          {"changed", facts.changed},
          {"compiler", facts.compiler},
          {"processor", facts.processor},
          {"cuda", known(facts.cuda, !facts.cuda.empty())},
          {"nccl", facts.nccl},
          {"cudnn", facts.cudnn}};
}

ExitCode run_version(const VersionOptions& options) {
  JsonOutput json(options.json);
  const BuildFacts facts = build_facts();
  say(version_line());
  say("back-ends  " + back_ends(facts));
  say("compiler   " + facts.compiler);
  json.write(json_of(facts));
  return ExitCode::done;
}

}  // namespace

std::string version_line() {
  const BuildFacts facts = build_facts();
  return "trireme " + facts.version + " (" + described_commit(facts) + ")";
}

std::unique_ptr<Command> version_command() { return make_command<VersionOptions>(run_version); }
std::unique_ptr<Command> help_command() {
  return make_command<HelpOptions>([](const HelpOptions&) { return ExitCode::done; });
}

}  // namespace trireme
