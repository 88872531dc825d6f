// trireme tokenizer train, encode, decode.
#include <charconv>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "data/tokenizer_train.h"
#include "train/commands.h"
#include "train/log.h"

namespace trireme {
namespace {

// Two bars, one after the other: the text is read, then pairs are merged.
class TrainingBars {
 public:
  void update(const TokenizerProgress& progress) {
    if (progress.entries == 0) {
      if (!reading_) reading_.emplace("reading", progress.bytes_total, human_bytes);
      reading_->update(progress.bytes_read);
      return;
    }
    if (!merging_) {
      if (reading_) reading_->finish();
      merging_.emplace("merging", progress.vocab);
    }
    merging_->update(progress.entries);
  }
  void finish() {
    if (merging_) merging_->finish();
  }

 private:
  std::optional<ProgressBar> reading_, merging_;
};

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

// Each line of standard input.
std::vector<std::string> json_strings() {
  std::vector<std::string> strings;
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    if (++number; !value.is_string()) throw DataError("line " + std::to_string(number) + " of the input is no JSON string");
    strings.push_back(value.get<std::string>());
  }
  return strings;
}

int32_t parse_id(const std::string& word) {
  int32_t id = -1;
  const char* end = word.data() + word.size();
  const auto [stop, status] = std::from_chars(word.data(), end, id);
  if (status != std::errc() || stop != end || id < 0)
    throw ConfigError("token id '" + word + "': must be a whole number, at least 0");
  return id;
}

}  // namespace

ExitCode run_tokenizer_train(const TokenizerTrainOptions& options) {
  TrainingBars bars;
  const TokenizerTraining training{
      .inputs = options.inputs, .vocab = options.vocab, .pattern = options.pattern, .documents = {.field = options.field}};
  const TokenizerResult result = train_tokenizer(training, [&](const TokenizerProgress& progress) { bars.update(progress); });
  bars.finish();
  for (const std::string& problem : result.problems) complain(problem);
  if (result.skipped > 0) complain(std::string(text(result.skipped, " documents were left out")));
  save_tokenizer_json(result.bpe, options.output);
  const auto entries = static_cast<int64_t>(result.bpe.tokens.size());
  say(std::string(text(options.output, ": ", entries, " entries from ", human_bytes(static_cast<double>(result.text_bytes)),
                       " of text in ", result.documents, " documents, ", result.distinct_words, " distinct words")));
  if (entries < options.vocab)
    complain(std::string(
        text("the text gave ", entries, " entries of the ", options.vocab, " wanted: it has no more pairs that repeat")));
  return ExitCode::done;
}

ExitCode run_tokenizer_encode(const std::string& tokenizer, const std::vector<std::string>& texts, bool json_lines) {
  const auto encoder = open_tokenizer(tokenizer);
  for (const std::string& words : !texts.empty() ? texts : json_lines ? json_strings() : std::vector{standard_input()}) {
    std::string line;
    for (const int32_t token : encoder->encode(words)) line += (line.empty() ? "" : " ") + std::to_string(token);
    say(line);
  }
  return ExitCode::done;
}

ExitCode run_tokenizer_decode(const std::string& tokenizer, const std::vector<std::string>& ids) {
  const auto decoder = open_tokenizer(tokenizer);
  std::vector<int32_t> tokens;
  for (const std::string& id : ids) tokens.push_back(parse_id(id));
  if (ids.empty()) {
    std::istringstream words(standard_input());
    for (std::string word; words >> word;) tokens.push_back(parse_id(word));
  }
  say(decoder->decode(tokens));
  return ExitCode::done;
}

}  // namespace trireme
