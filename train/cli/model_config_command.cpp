// trireme model config: a config that fine-tunes a published model.
#include <algorithm>
#include <filesystem>

#include "train/cli/commands.h"
#include "train/config/expand_path.h"
#include "train/config/keys.h"
#include "train/config/starter_config.h"
#include "train/hub/published_config.h"
#include "train/step/plan.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr int64_t kTuningSteps = 1000, kTuningBatch = 64, kTuningContext = 4096;

struct ModelConfigOptions {
  static constexpr auto name = "model config";
  static constexpr auto about = "Print a config that fine-tunes a published model";
  std::string directory;
  void visit(Options& o) { o("directory", directory, "Directory with config.json and safetensors").required(); }
};

// Peak learning rate for fine-tuning: larger models take smaller steps.
const char* tuning_lr(int64_t parameters) {
  constexpr int64_t kBillion = 1'000'000'000;
  return parameters < kBillion ? "5e-5" : parameters < 10 * kBillion ? "2e-5" : "1e-5";
}

std::string path_value(const std::string& path) { return quoted(escape_path(path)); }

void print_training(const std::string& directory, const char* lr) {
  say("train:\n  name: " + quoted(run_name_of(directory)));
  say("  init_from: " + path_value(directory));
  say("  steps: " + std::to_string(kTuningSteps) + "             # one to three epochs of your text");
  say("  batch: " + std::to_string(kTuningBatch) + "               # sequences of one step");
  say("  microbatch: 1           # sequences at once; raise it if memory allows");
  say("  lr: " + std::string(lr) + "                # for fine-tuning; a fresh model takes 10 to 100 times more");
  say("  warmup: " + std::to_string(kTuningSteps * 3 / 100) + "              # 3 % of the steps");
  say("  min_lr: 0.1             # of lr, at the end");
}

ExitCode run_model_config(const ModelConfigOptions& options) {
  const std::string& directory = options.directory;
  require_published(directory);
  RunConfig config;
  config.model = read_published_config(directory + "/config.json");
  // Learned positions are weights; rotary ones have any length.
  if (config.model.family == Family::llama) config.model.context = std::min(config.model.context, kTuningContext);
  config.train.batch = kTuningBatch, config.train.microbatch = 1;
  say("model:");
  for (const Key& key : list_keys(config))
    if (key.section == "model") say("  " + key.name + ": " + key.value);
  const std::string tokenizer = published_tokenizer(directory);
  say("data:\n  # trireme data build TEXTS --output corpus/text --tokenizer " + (tokenizer.empty() ? "TOKENIZER" : tokenizer) +
      " --validation 0.05");
  say("  train: [corpus/text/train-*.h5]");
  say("  validation: [corpus/text/validation-*.h5]");
  if (!tokenizer.empty()) say("  tokenizer: " + path_value(tokenizer));
  print_training(directory, tuning_lr(make_plan(config, Mesh()).parameters));
  if (const std::string doubt = doubt_published_tokenizer(directory); !doubt.empty()) complain(doubt);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> model_config_command() { return make_command<ModelConfigOptions>(run_model_config); }

}  // namespace trireme
