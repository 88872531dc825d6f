// trireme tokenizer train, encode, decode.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/json.h"
#include "base/replace_file.h"
#include "data/build/tokenizer_train.h"
#include "data/documents/list_files.h"
#include "data/text/text_file.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "train/cli/commands.h"
#include "train/cli/output_path.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct TokenizerTrainOptions {
  static constexpr auto name = "tokenizer train";
  static constexpr auto about = "Train a byte-pair encoding on text";
  std::vector<std::string> inputs, special;
  std::string output, field = "text", pattern = "gpt2", text_limit = "1GiB";
  int64_t vocab = 4096;
  bool replace = false;

  void visit(Options& o) {
    o("input", inputs, kTextInputs).required();
    o("--output", output, "The tokenizer.json to write").required();
    o("--replace", replace, "Replace the output");
    o("--vocab", vocab, "Entries, special tokens among them", between(257, 1 << 24));
    o("--field", field, "Field of a JSON line that holds the text");
    o("--pattern", pattern, "Pattern that cuts text into words: gpt2, cl100k, o200k, llama3 or qwen2");
    o("--special", special, "A special token beside <|endoftext|>, such as '<|user|>'; may be repeated. Their ids are the last")
        .repeated();
    o("--text-limit", text_limit,
      "Bytes of text to train on; of more text an even sample of documents is used, which bounds the memory");
  }
};

struct TokenizerTextOptions {
  std::string tokenizer;
  std::vector<std::string> given;  // texts, or token ids that are one text; none: those of the files
  std::vector<std::string> files;  // each a text; none: stdin
  bool lines = false;              // each line of a file is a text
  bool json_lines = false;         // likewise, as a JSON string

  void visit_files(Options& o, const std::string& about_lines, const std::string& about_json_lines) {
    o("--file", files, "File that is a text; may be repeated; .gz, .zst, .xz and .bz2 are unpacked; -: standard input").repeated();
    o("--lines", lines, about_lines).excludes("--json-lines");
    o("--json-lines", json_lines, about_json_lines);
  }
};

struct TokenizerEncodeOptions : TokenizerTextOptions {
  static constexpr auto name = "tokenizer encode";
  static constexpr auto about = "Print the token ids of texts, one line for each";
  void visit(Options& o) {
    o("tokenizer", tokenizer, kTokenizers).required();
    o("texts", given, "Texts; default: --file, or else all of standard input as one").rest();
    visit_files(o, "Each line of stdin or of a file, without its end, is a text",
                "Each line of stdin or of a file is a JSON string, and a text");
  }
  static std::string footer() {
    return "A text that begins with - goes after --, as in: trireme tokenizer encode bytes 'a text' -- '-another'\n"
           "The written form of a special token is encoded like any other text.";
  }
};

struct TokenizerDecodeOptions : TokenizerTextOptions {
  static constexpr auto name = "tokenizer decode";
  static constexpr auto about = "Print the text of token ids";
  void visit(Options& o) {
    o("tokenizer", tokenizer, kTokenizers).required();
    o("ids", given, "Token ids; default: those of --file, or else of standard input");
    visit_files(o, "Each line of stdin or of a file has the ids of a text, and gives a line",
                "Likewise, each text as a JSON string: what is not UTF-8 becomes U+FFFD");
  }
  static std::string footer() {
    return "decode --lines gives back the lines that encode --lines was given, decode --json-lines the strings.";
  }
};

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
      merging_.emplace("merging", progress.vocab, human_count, "entries");
    }
    merging_->update(progress.entries);
  }
  void finish() {
    if (merging_) merging_->finish();
  }

 private:
  std::optional<ProgressBar> reading_, merging_;
};

// The texts of the files that `options` names, with the places where they stand.
void each_text(const TokenizerTextOptions& options,
               const std::function<void(std::string_view text, const std::string& where)>& use) {
  constexpr int64_t kPart = 1 << 20;
  const bool lines = options.lines || options.json_lines;
  for (const std::string& name : options.files.empty() ? std::vector{std::string(kStandardInput)} : options.files) {
    TextFile file = name == kStandardInput ? TextFile::standard_input("stdin") : TextFile(name);
    std::string rest;
    for (int64_t number = 1; !file.ended();) {
      const size_t had = rest.size();
      rest.resize(had + kPart);
      rest.resize(had + static_cast<size_t>(file.read(rest.data() + had, kPart)));
      size_t from = 0;
      for (size_t end = lines ? rest.find('\n', had) : rest.npos; end != rest.npos; end = rest.find('\n', from)) {
        use(std::string_view(rest).substr(from, end - from), text(file.path(), ":", number++));
        from = end + 1;
      }
      rest.erase(0, from);
      if (file.ended() && !(lines && rest.empty())) use(rest, lines ? text(file.path(), ":", number) : std::string(file.path()));
    }
  }
}

void say_ids(const Tokenizer& tokenizer, std::string_view words) {
  std::string line;
  for (const int32_t token : tokenizer.encode(words)) line += (line.empty() ? "" : " ") + std::to_string(token);
  say(line);
}

int32_t parse_id(std::string_view word, const std::string& where) {
  int32_t id = -1;
  const char* end = word.data() + word.size();
  const auto [stop, status] = std::from_chars(word.data(), end, id);
  if (status != std::errc() || stop != end || id < 0)
    throw ConfigError(text(where, "token id '", word, "': must be a whole number, at least 0"));
  return id;
}

std::vector<int32_t> parse_ids(std::string_view words, const std::string& where) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::vector<int32_t> ids;
  for (size_t at = words.find_first_not_of(kSpaces); at != words.npos; at = words.find_first_not_of(kSpaces, at)) {
    const size_t end = std::min(words.find_first_of(kSpaces, at), words.size());
    ids.push_back(parse_id(words.substr(at, end - at), where + ": "));
    at = end;
  }
  return ids;
}

void refuse_files_beside_texts(const TokenizerTextOptions& options, const std::string& given) {
  const char* option = !options.files.empty() ? "--file"
                       : options.lines        ? "--lines"
                       : options.json_lines   ? "--json-lines"
                                              : nullptr;
  if (!options.given.empty() && option != nullptr)
    throw ConfigError(text(given, " are given, which ", option, " does not go with"));
}

ExitCode run_tokenizer_train(const TokenizerTrainOptions& options) {
  if (!options.replace && std::filesystem::exists(options.output) && !is_stream(options.output))
    throw ConfigError(options.output + ": is there already; --replace replaces it");
  const std::optional<int64_t> limit = parse_bytes(options.text_limit);
  if (!limit) throw ConfigError("--text-limit " + options.text_limit + ": must be a size such as 1GiB");
  const PreparedOutput output = prepare_output(options.output, OutputKind::replaced_file);
  TrainingBars bars;
  TokenizerTraining training{
      .inputs = options.inputs, .vocab = options.vocab, .pattern = options.pattern, .documents = {.field = options.field}};
  training.text_limit = *limit;
  training.special = options.special;
  const TokenizerResult result = train_tokenizer(training, [&](const TokenizerProgress& progress) { bars.update(progress); });
  bars.finish();
  for (const std::string& problem : result.problems) complain(problem);
  if (result.skipped > 0) complain(std::string(text(result.skipped, " documents were left out")));
  if (!write_output(options.output, tokenizer_json(result.bpe))) throw unwritable(options.output);
  const auto entries = static_cast<int64_t>(result.bpe.tokens.size());
  const bool sampled = result.text_bytes < result.all_text_bytes;
  const std::string of = sampled ? " of " + human_bytes(static_cast<double>(result.all_text_bytes)) : "";
  say(std::string(text(options.output, ": ", entries, " entries from ", human_bytes(static_cast<double>(result.text_bytes)), of,
                       " of text in ", result.documents, " documents, ", result.distinct_words, " distinct words")));
  if (sampled) complain("this was an even sample of the documents, for --text-limit " + options.text_limit);
  if (entries < options.vocab)
    complain(std::string(
        text("the text gave ", entries, " entries of the ", options.vocab, " wanted: it has no more pairs that repeat")));
  return ExitCode::done;
}

ExitCode run_tokenizer_encode(const TokenizerTextOptions& options) {
  refuse_files_beside_texts(options, "texts");
  const std::vector<std::string>& texts = options.given;
  const auto tokenizer = open_tokenizer(options.tokenizer);
  for (const std::string& words : texts) say_ids(*tokenizer, words);
  std::error_code none;
  if (texts.size() == 1 && std::filesystem::is_regular_file(texts[0], none))
    complain(std::string(text("these are the ids of the text '", texts[0], "'; those of the file are given by --file ", texts[0])));
  if (!texts.empty()) return ExitCode::done;
  each_text(options, [&](std::string_view words, const std::string& where) {
    if (!options.json_lines) return say_ids(*tokenizer, words);
    const Json value = Json::parse_or_null(words);
    if (!value.is_string()) throw DataError(where + ": is not a JSON string");
    say_ids(*tokenizer, value.string());
  });
  return ExitCode::done;
}

ExitCode run_tokenizer_decode(const TokenizerTextOptions& options) {
  refuse_files_beside_texts(options, "ids");
  const auto tokenizer = open_tokenizer(options.tokenizer);
  if (!options.given.empty()) {
    std::vector<int32_t> tokens;
    for (const std::string& id : options.given) tokens.push_back(parse_id(id, ""));
    say_text(tokenizer->decode(tokens));
    return ExitCode::done;
  }
  each_text(options, [&](std::string_view words, const std::string& where) {
    const std::string decoded = tokenizer->decode(parse_ids(words, where));
    say_text(options.json_lines ? Json(decoded).dump() : decoded);
  });
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> tokenizer_train_command() { return make_command<TokenizerTrainOptions>(run_tokenizer_train); }
std::unique_ptr<Command> tokenizer_encode_command() { return make_command<TokenizerEncodeOptions>(run_tokenizer_encode); }
std::unique_ptr<Command> tokenizer_decode_command() { return make_command<TokenizerDecodeOptions>(run_tokenizer_decode); }

}  // namespace trireme
