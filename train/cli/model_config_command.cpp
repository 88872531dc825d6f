// trireme model config: a config that trains on from a published model.
#include "train/cli/commands.h"
#include "train/config/keys.h"
#include "train/hub/published_config.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct ModelConfigOptions {
  static constexpr auto name = "model config";
  static constexpr auto about = "Print a config that continues training a published model";
  std::string directory;
  void visit(Options& o) { o("directory", directory, "That holds its config.json").required(); }
};

ExitCode run_model_config(const ModelConfigOptions& options) {
  const std::string& directory = options.directory;
  RunConfig config;
  config.model = read_published_config(directory + "/config.json");
  say("model:");
  for (const Key& key : list_keys(config))
    if (key.section == "model") say("  " + key.name + ": " + key.value);
  const std::string tokenizer = published_tokenizer(directory);
  say("data:\n  train: [corpus/train-*.h5]  # by `trireme data build TEXTS --output corpus --tokenizer " +
      (tokenizer.empty() ? "TOKENIZER" : tokenizer) + "`");
  if (!tokenizer.empty()) say("  tokenizer: " + tokenizer);
  say("train:\n  init_from: " + directory);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> model_config_command() { return make_command<ModelConfigOptions>(run_model_config); }

}  // namespace trireme
