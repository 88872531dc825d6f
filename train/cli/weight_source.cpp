#include "train/cli/weight_source.h"

#include <algorithm>
#include <filesystem>

#include "base/hub_name.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/reader.h"
#include "train/config/nearest.h"
#include "train/hub/published_config.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualContext = 2048;  // tokens; a published model may have 128 times as many
constexpr size_t kMostNamed = 12;        // runs in a message

bool has_checkpoints(const std::string& directory) { return !steps_in(Io(), checkpoints_of(directory)).empty(); }

// Names of the run directories in `directory`, sorted.
std::vector<std::string> runs_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (at->is_directory(error) && has_checkpoints(at->path())) names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

// "a, b, c and 7 more"
std::string listed(const std::vector<std::string>& names) {
  std::string line;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) line += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNamed ? std::string(text(line, " and ", names.size() - kMostNamed, " more")) : line;
}

[[noreturn]] void refuse_absent(const std::string& from) {
  fs::path path(from);
  if (!path.has_filename()) path = path.parent_path();
  const bool bare = !path.has_parent_path();
  const std::string directory = bare ? RunConfig().train.runs : path.parent_path().string();
  const std::vector<std::string> runs = runs_in(directory);
  const std::string absent = from + ": no such file or directory", near = nearest(path.filename(), runs);
  if (!near.empty()) throw CheckpointError(absent + "; did you mean " + (bare ? "" : directory + "/") + near + "?");
  std::string remedy = runs.empty() ? "; name a run, a checkpoint, a config or a published model's directory"
                                    : "; runs in " + directory + ": " + listed(runs);
  if (may_be_hub_name(from) && (bare || !fs::exists(directory)))
    remedy += "; to fetch a published model: hf download " + from + " --local-dir DIR";
  throw CheckpointError(absent + remedy);
}

// A directory without a checkpoint and without a published model.
[[noreturn]] void refuse_directory(const std::string& from) {
  if (const std::vector<std::string> runs = runs_in(from); !runs.empty())
    throw CheckpointError(from + ": holds several runs; name one of them: " + listed(runs));
  if (fs::exists(from + "/metrics.jsonl") || fs::exists(from + "/log.txt"))
    throw CheckpointError(from + ": this run has no checkpoint yet; it saves every checkpoint.every steps and at its end");
  throw CheckpointError(from + ": holds no checkpoint, and no config.json of a published model");
}

WeightSource published(const WeightWords& words, const std::string& from) {
  if (words.step >= 0) throw ConfigError(text("--step ", words.step, ": ", from, " is a published model, without checkpoints"));
  RunConfig config;
  config.model = read_published_config(from + "/config.json");
  config.model.context = std::min(config.model.context, kUsualContext);
  config.train.init_from = from;
  config.data.tokenizer = published_tokenizer(from);
  const std::string tokenizer = config.data.tokenizer;
  config = parse_config(from, to_yaml(config), words.set, Purpose::mesh);
  const std::string doubt = config.data.tokenizer == tokenizer ? doubt_published_tokenizer(from) : "";
  if (!doubt.empty()) complain(doubt);
  return {config, ""};
}

WeightSource of_checkpoint(const WeightWords& words, const std::string& run_or_checkpoint) {
  const bool chosen = words.step >= 0;
  const CheckpointReader checkpoint(chosen ? checkpoints_of(run_or_checkpoint) + "/" + step_name(words.step) : run_or_checkpoint);
  std::vector<std::string> set{"kernels.device=auto"};  // wherever it was trained
  set.insert(set.end(), words.set.begin(), words.set.end());
  return {parse_saved_config(checkpoint.directory(), checkpoint.manifest().config, set, Purpose::mesh), checkpoint.directory()};
}

// The newest checkpoint of the run that a config describes, or what that run would begin with.
WeightSource of_config(const WeightWords& words) {
  for (const char* ending : {".safetensors", ".h5", ".bin", ".pt", ".pth", ".gguf", ".json"})
    if (words.from.ends_with(ending)) throw ConfigError(words.from + ": is one file of a model; name the directory that holds it");
  const RunConfig config = read_config(words.from, words.set, Purpose::mesh);
  const std::string run = config.train.directory();
  if (has_checkpoints(run)) return of_checkpoint(words, run);
  if (config.train.init_from.empty())
    throw ConfigError(words.from + ": " + run + " holds no checkpoints, and there is no train.init_from");
  if (words.step >= 0) throw ConfigError(text("--step ", words.step, ": ", run, " holds no checkpoints"));
  return {config, ""};
}

}  // namespace

WeightSource find_weights(const WeightWords& words) {
  std::string from = words.from;
  if (!fs::exists(from)) {
    const std::string run = RunConfig().train.runs + "/" + from;
    if (from.empty() || from.find('/') != std::string::npos || !has_checkpoints(run)) refuse_absent(from);
    from = run;
  }
  if (fs::is_regular_file(from)) return of_config(words);
  const bool checkpoints = has_checkpoints(from) || fs::exists(from + "/" + kManifestName);
  if (!checkpoints && fs::exists(from + "/config.json")) return published(words, from);
  if (!checkpoints) refuse_directory(from);
  return of_checkpoint(words, from);
}

}  // namespace trireme
