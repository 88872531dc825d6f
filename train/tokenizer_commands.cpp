// trireme tokenizer train, encode, decode.
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "data/documents.h"
#include "data/text_file.h"
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

// All of a file; `name` may be "-".
std::string text_of(const std::string& name) {
  constexpr int64_t kPart = 1 << 20;
  TextFile file = name == kStandardInput ? TextFile::standard_input("stdin.txt") : TextFile(name);
  std::string all;
  while (!file.ended()) {
    const size_t had = all.size();
    all.resize(had + kPart);
    all.resize(had + static_cast<size_t>(file.read(all.data() + had, kPart)));
  }
  return all;
}

std::vector<std::string> json_strings(const std::string& lines, const std::string& name) {
  std::vector<std::string> strings;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    if (!value.is_string())
      throw DataError(text(name == kStandardInput ? "stdin" : name, ":", strings.size() + 1, ": is no JSON string"));
    strings.push_back(value.get<std::string>());
  }
  return strings;
}

void say_ids(const Tokenizer& tokenizer, const std::string& words) {
  std::string line;
  for (const int32_t token : tokenizer.encode(words)) line += (line.empty() ? "" : " ") + std::to_string(token);
  say(line);
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

ExitCode run_tokenizer_encode(const TokenizerTextOptions& options) {
  const std::vector<std::string>& texts = options.given;
  if (!texts.empty() && (options.json_lines || !options.files.empty()))
    throw ConfigError("tokenizer encode: texts are given, which " + std::string(options.json_lines ? "--json-lines" : "--file") +
                      " does not go with");
  const auto tokenizer = open_tokenizer(options.tokenizer);
  for (const std::string& words : texts) say_ids(*tokenizer, words);
  std::error_code none;
  if (texts.size() == 1 && std::filesystem::is_regular_file(texts[0], none))
    complain(std::string(text("these are the ids of the text '", texts[0], "'; those of the file are given by --file ", texts[0])));
  if (!texts.empty()) return ExitCode::done;
  for (const std::string& file : options.files.empty() ? std::vector{std::string(kStandardInput)} : options.files) {
    const std::string all = text_of(file);
    for (const std::string& words : options.json_lines ? json_strings(all, file) : std::vector{all}) say_ids(*tokenizer, words);
  }
  return ExitCode::done;
}

ExitCode run_tokenizer_decode(const TokenizerTextOptions& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  std::vector<int32_t> tokens;
  for (const std::string& id : options.given) tokens.push_back(parse_id(id));
  if (options.given.empty()) {
    std::istringstream words(text_of(std::string(kStandardInput)));
    for (std::string word; words >> word;) tokens.push_back(parse_id(word));
  }
  say(tokenizer->decode(tokens));
  return ExitCode::done;
}

}  // namespace trireme
