#include "train/config/starter_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "train/config/expand_path.h"
#include "train/config/keys.h"

namespace trireme {
namespace {

struct Starter {
  int64_t below;  // bytes of text
  int64_t layers, width, heads, vocab, context, batch, microbatch;
  const char* lr;
  double parameters;  // about, for the number of steps
};
constexpr std::array<Starter, 4> kStarters{{
    {2'000'000, 4, 128, 4, 4096, 128, 16, 0, "3e-3", 1.3e6},
    {50'000'000, 6, 256, 8, 4096, 256, 16, 0, "2e-3", 6e6},
    {1'000'000'000, 12, 512, 8, 16384, 512, 64, 8, "1e-3", 47e6},
    {std::numeric_limits<int64_t>::max(), 12, 768, 12, 32768, 1024, 256, 8, "6e-4", 110e6},
}};

const Starter& starter_of(StarterSize size) { return kStarters.at(static_cast<size_t>(size)); }

// Steps for 20 tokens a parameter, but four epochs at most, in hundreds.
int64_t starter_steps(const Starter& starter, int64_t text_bytes) {
  constexpr double kBytesPerToken = 3.5, kEpochs = 4, kTokensPerParameter = 20;
  const double tokens =
      std::min(kEpochs * static_cast<double>(text_bytes) / kBytesPerToken, kTokensPerParameter * starter.parameters);
  const auto steps = static_cast<int64_t>(tokens / static_cast<double>(starter.batch * starter.context));
  return std::max<int64_t>(steps / 100, 1) * 100;
}

std::string starter_line(const std::string& key, const std::string& value, const std::string& comment = "") {
  const std::string line = "  " + key + ": " + value;
  if (comment.empty()) return line + "\n";
  constexpr size_t kCommentColumn = 28;
  return line + std::string(line.size() < kCommentColumn ? kCommentColumn - line.size() : 2, ' ') + "# " + comment + "\n";
}

std::string model_lines(const Starter& starter) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  return "model:\n" + starter_line("layers", number(starter.layers), "more layers and width: a better, slower model") +
         starter_line("width", number(starter.width), "a multiple of heads") + starter_line("heads", number(starter.heads)) +
         starter_line("vocab", number(starter.vocab), "at least the tokenizer's --vocab") +
         starter_line("context", number(starter.context), "tokens that the model sees at once") +
         starter_line("tied", "true", "one matrix for embedding and output") +
         starter_line("qk_norm", "true", "steadier at high learning rates");
}

std::string train_lines(const Starter& starter, const std::string& name, int64_t steps) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string lines = "train:\n" + starter_line("name", quoted(name), "results go to runs/NAME") +
                      starter_line("steps", number(steps)) + starter_line("batch", number(starter.batch), "sequences a step");
  if (starter.microbatch > 0)
    lines += starter_line("microbatch", number(starter.microbatch), "sequences at once; lower it if memory is short");
  return lines + starter_line("lr", starter.lr, "peak learning rate; halve it if the loss jumps") +
         starter_line("warmup", number(std::max<int64_t>(steps / 20, 10)), "steps from 0 to lr") +
         starter_line("schedule", "cosine") + starter_line("eval_every", number(std::max<int64_t>(steps / 10, 20))) +
         starter_line("eval_sequences", "256", "validation sequences of one evaluation");
}

}  // namespace

StarterSize starter_size(int64_t text_bytes) {
  const auto* const fits = std::ranges::find_if(kStarters, [&](const Starter& starter) { return text_bytes < starter.below; });
  return static_cast<StarterSize>(std::min<int64_t>(fits - kStarters.begin(), std::ssize(kStarters) - 1));
}

StarterSize parse_starter_size(const std::string& word) {
  constexpr auto& kWords = Names<StarterSize>::words;
  const auto* const found = std::ranges::find(kWords, word);
  require(found != kWords.end(), text("no size '", word, "'"));
  return static_cast<StarterSize>(found - kWords.begin());
}

std::string run_name_of(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

std::string starter_yaml(const std::string& directory, StarterSize size, int64_t text_bytes) {
  const Starter& starter = starter_of(size);
  const std::string here = escape_path(directory);
  const int64_t steps = starter_steps(starter, text_bytes);
  return "# A " + std::string(name_of(size)) + " Llama-style model for the text of this directory. Change what you like:\n" +
         "# 'trireme train --help' explains every key, 'trireme plan' shows parameters and memory.\n" + model_lines(starter) +
         "data:                       # paths count from the directory where trireme is started\n" +
         starter_line("train", "[" + quoted(here + "/corpus/train-*.h5") + "]") +
         starter_line("validation", "[" + quoted(here + "/corpus/validation-*.h5") + "]") +
         starter_line("tokenizer", quoted(here + "/tokenizer.json")) + "checkpoint:\n" +
         starter_line("every", std::to_string(std::max<int64_t>(steps / 10, 20)), "steps between checkpoints") +
         train_lines(starter, run_name_of(directory), steps);
}

}  // namespace trireme
