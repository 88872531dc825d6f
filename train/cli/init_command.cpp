// trireme init: a config for one's own text, and the commands that follow.
#include <cerrno>
#include <filesystem>

#include "base/number_format.h"
#include "base/replace_file.h"
#include "data/documents/list_files.h"
#include "data/text/unpacker.h"
#include "train/cli/commands.h"
#include "train/config/config.h"
#include "train/config/starter_config.h"
#include "train/step/plan.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct InitOptions {
  static constexpr auto name = "init";
  static constexpr auto about = "Write a commented config for your own text";
  std::string directory, size = "auto";
  std::vector<std::string> texts;

  void visit(Options& o) {
    o("directory", directory, "Directory for config.yaml, tokenizer.json and corpus/; created").required();
    o("--text", texts, kTextInputs).required();
    o("--size", size, "Size of the model; auto: by the amount of text").one_of({"auto", "tiny", "small", "medium", "large"});
  }
};

// Bytes of the files; packed ones count four times.
int64_t text_bytes(const std::vector<std::string>& files) {
  constexpr int64_t kUnpacked = 4;
  int64_t bytes = 0;
  for (const std::string& file : files) {
    if (file == kStandardInput) throw ConfigError("--text -: standard input cannot be measured; name files");
    const bool packed = unpacked_name(file) != file;
    bytes += static_cast<int64_t>(std::filesystem::file_size(file)) * (packed ? kUnpacked : 1);
  }
  return bytes;
}

// A word as a shell takes it.
std::string shell_word(const std::string& word) {
  constexpr auto kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%*?";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void print_next(const InitOptions& options, const RunConfig& config) {
  std::string texts;
  for (const std::string& input : options.texts) texts += shell_word(input) + " ";
  const std::string& directory = options.directory;
  const std::string tokenizer = shell_word(directory + "/tokenizer.json");
  say("next:");
  say("  trireme tokenizer train " + texts + "--vocab " + std::to_string(config.model.vocab) + " --output " + tokenizer);
  say("  trireme data build " + texts + "--tokenizer " + tokenizer + " --validation 0.05 --output " +
      shell_word(directory + "/corpus"));
  say("  trireme train " + shell_word(directory + "/config.yaml"));
  say("  trireme sample " + shell_word(config.train.directory()) + " --prompt \"Once upon a time\"");
}

ExitCode run_init(const InitOptions& given) {
  InitOptions options = given;
  while (options.directory.size() > 1 && options.directory.ends_with('/')) options.directory.pop_back();
  const std::string path = options.directory + "/config.yaml";
  if (std::filesystem::exists(path)) throw ConfigError(path + ": exists already; remove it, or choose another directory");
  const int64_t bytes = text_bytes(list_files(options.texts));
  const StarterSize size = options.size == "auto" ? starter_size(bytes) : parse_starter_size(options.size);
  const std::string yaml = starter_yaml(options.directory, size, bytes);
  const RunConfig config = parse_config(path, yaml);
  std::error_code failed;
  std::filesystem::create_directories(options.directory, failed);
  if (failed) {
    errno = failed.value();
    throw unwritable(options.directory);
  }
  if (!replace_file(path, yaml)) throw unwritable(path);
  const double parameters = static_cast<double>(make_plan(config, Mesh()).parameters);
  say(path + ": " + std::string(name_of(size)) + ", " + human_count(parameters) + " parameters for " +
      human_bytes(static_cast<double>(bytes)) + " of text, " + std::to_string(config.train.steps) + " steps");
  print_next(options, config);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> init_command() { return make_command<InitOptions>(run_init); }

}  // namespace trireme
