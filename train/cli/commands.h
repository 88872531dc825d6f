// Commands of the program. Each is a struct of options with a name, and a function that runs it, in a file of its own. To add one,
// write such a file, and add a line here and in all_commands(). Help, man page and completion follow.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/cli/options.h"

namespace trireme {

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;  // "plan", "data build"
  virtual std::string about() const = 0;
  virtual std::function<std::string()> footer() const = 0;  // of --help; empty: none
  virtual void visit(Options& options) = 0;
  // Returns an exit code, or throws an Error that has one. Prints through train/telemetry/log.h.
  virtual ExitCode run() = 0;
};

// Command made of a struct with `name`, `about`, visit(Options&) and, optionally, footer().
template <class Given>
class CommandOf final : public Command {
 public:
  explicit CommandOf(std::function<ExitCode(const Given&)> run) : run_(std::move(run)) {}
  std::string name() const override { return Given::name; }
  std::string about() const override { return Given::about; }
  std::function<std::string()> footer() const override {
    if constexpr (requires { Given::footer(); }) return Given::footer;
    return {};
  }
  void visit(Options& options) override { given_.visit(options); }
  ExitCode run() override { return run_(given_); }

 private:
  Given given_;
  std::function<ExitCode(const Given&)> run_;
};

template <class Given>
std::unique_ptr<Command> make_command(std::function<ExitCode(const Given&)> run) {
  return std::make_unique<CommandOf<Given>>(std::move(run));
}

constexpr const char* kTokenizers =
    "A tokenizer.json, a vocab.json with merges.txt beside it, SentencePiece's FILE.model, ranks of tiktoken's (FILE.tiktoken, or "
    "FILE.tiktoken@cl100k; Llama 3's tokenizer.model), or 'bytes'";
constexpr const char* kTextInputs =
    "Files, directories or patterns; each file is a document; in .jsonl, each line; .gz, .zst, .xz and .bz2 are unpacked";

std::unique_ptr<Command> init_command();
std::unique_ptr<Command> train_command();
std::unique_ptr<Command> supervise_command();
std::unique_ptr<Command> plan_command();
std::unique_ptr<Command> watch_command();
std::unique_ptr<Command> report_command();
std::unique_ptr<Command> sample_command();
std::unique_ptr<Command> chat_command();
std::unique_ptr<Command> eval_command();
std::unique_ptr<Command> data_build_command();
std::unique_ptr<Command> data_import_command();
std::unique_ptr<Command> data_info_command();
std::unique_ptr<Command> data_verify_command();
std::unique_ptr<Command> data_where_command();
std::unique_ptr<Command> data_exclude_command();
std::unique_ptr<Command> tokenizer_train_command();
std::unique_ptr<Command> tokenizer_encode_command();
std::unique_ptr<Command> tokenizer_decode_command();
std::unique_ptr<Command> checkpoint_list_command();
std::unique_ptr<Command> checkpoint_verify_command();
std::unique_ptr<Command> checkpoint_diff_command();
std::unique_ptr<Command> config_schema_command();
std::unique_ptr<Command> model_export_command();
std::unique_ptr<Command> model_config_command();
std::unique_ptr<Command> bench_kernels_command();
std::unique_ptr<Command> bench_step_command();
std::unique_ptr<Command> bench_save_command();
std::unique_ptr<Command> bench_tokenizer_command();
std::unique_ptr<Command> bench_data_command();
std::unique_ptr<Command> bench_fabric_command();
std::unique_ptr<Command> doctor_command();
std::unique_ptr<Command> version_command();
std::unique_ptr<Command> help_command();
using AllCommands = std::vector<std::unique_ptr<Command>> (*)();
std::unique_ptr<Command> man_command(AllCommands all);  // all: the commands to describe
std::unique_ptr<Command> completion_command(AllCommands all);

std::string version_line();  // "trireme 0.2.0 (commit 0123456789ab of 2026-02-03)"

// All commands, in the order of --help.
std::vector<std::unique_ptr<Command>> all_commands();

}  // namespace trireme
