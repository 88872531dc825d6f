#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_files.h"

namespace trireme {

namespace {

constexpr int64_t kLargestFile = 64 << 20;

// Facts that a file of ranks leaves to its program.
struct Encoding {
  std::string name;
  size_t ranks;  // of the published file
  std::string pattern;
  std::vector<std::pair<int32_t, std::string>> special;
  std::string end;  // of a document
  bool compose = false;
};

std::vector<std::pair<int32_t, std::string>> llama3_special() {
  const std::vector<std::string> first{"<|begin_of_text|>",
                                       "<|end_of_text|>",
                                       "<|reserved_special_token_0|>",
                                       "<|reserved_special_token_1|>",
                                       "<|reserved_special_token_2|>",
                                       "<|reserved_special_token_3|>",
                                       "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|reserved_special_token_4|>",
                                       "<|eot_id|>"};
  std::vector<std::pair<int32_t, std::string>> special;
  for (int32_t i = 0; i < 256; ++i) {
    const auto at = static_cast<size_t>(i);
    special.emplace_back(128000 + i, at < first.size() ? first[at] : "<|reserved_special_token_" + std::to_string(i - 5) + "|>");
  }
  return special;
}

std::vector<std::pair<int32_t, std::string>> qwen_special() {
  std::vector<std::pair<int32_t, std::string>> special{{151643, kEndOfText}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}};
  for (int32_t i = 0; i < 205; ++i) special.emplace_back(151646 + i, "<|extra_" + std::to_string(i) + "|>");
  return special;
}

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> all{
      {.name = "r50k", .ranks = 50256, .pattern = patterns::gpt2, .special = {{50256, kEndOfText}}, .end = kEndOfText},
      {.name = "p50k", .ranks = 50280, .pattern = patterns::gpt2, .special = {{50256, kEndOfText}}, .end = kEndOfText},
      {.name = "cl100k",
       .ranks = 100256,
       .pattern = patterns::cl100k,
       .special = {{100257, kEndOfText},
                   {100258, "<|fim_prefix|>"},
                   {100259, "<|fim_middle|>"},
                   {100260, "<|fim_suffix|>"},
                   {100276, "<|endofprompt|>"}},
       .end = kEndOfText},
      {.name = "o200k",
       .ranks = 199998,
       .pattern = patterns::o200k,
       .special = {{199999, kEndOfText}, {200018, "<|endofprompt|>"}},
       .end = kEndOfText},
      {.name = "llama3", .ranks = 128000, .pattern = patterns::llama3, .special = llama3_special(), .end = "<|end_of_text|>"},
      {.name = "qwen", .ranks = 151643, .pattern = patterns::qwen2, .special = qwen_special(), .end = kEndOfText, .compose = true},
  };
  return all;
}

const Encoding& encoding_of(const std::string& name, const std::string& wanted, size_t ranks) {
  std::string known;
  for (const Encoding& encoding : encodings()) {
    if (wanted.empty() ? encoding.ranks == ranks : encoding.name == wanted) return encoding;
    known += " " + encoding.name;
  }
  if (wanted.empty())
    throw DataError(text(name, ": ", ranks, " ranks are of no published encoding: say by whose pattern it cuts words, as in ", name,
                         "@cl100k; known are", known));
  throw DataError(text(name, ": there is no encoding '", wanted, "'; known are", known));
}

// False where `digits` is not base64.
bool decode_base64(std::string_view digits, std::string& bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (digits.empty() || digits.size() % 4 != 0) return false;
  while (digits.ends_with('=')) digits.remove_suffix(1);
  bytes.clear();
  uint32_t bits = 0;
  int count = 0;
  for (const char c : digits) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return !bytes.empty();
}

// Each way in which a token is two others is a merge.
void add_merges(Bpe& bpe) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < bpe.tokens.size(); ++id)
    if (!bpe.tokens[id].empty()) ids.emplace(bpe.tokens[id], static_cast<int32_t>(id));
  for (const std::string& token : bpe.tokens)
    for (size_t i = 1; i < token.size(); ++i) {
      const auto left = ids.find(std::string_view(token).substr(0, i)), right = ids.find(std::string_view(token).substr(i));
      if (left != ids.end() && right != ids.end()) bpe.merges.emplace_back(left->second, right->second);
    }
}

}  // namespace

Bpe parse_tiktoken(std::string_view ranks, const std::string& name, const std::string& wanted) {
  std::unordered_map<int32_t, std::string> by_id;
  std::unordered_map<std::string, int32_t> ids;
  int32_t highest = -1;
  for (int64_t number = 1; !ranks.empty(); ++number) {
    std::string_view line = ranks.substr(0, ranks.find('\n'));
    ranks.remove_prefix(std::min(ranks.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    std::string bytes;
    int32_t id = -1;
    const bool shaped = space != std::string_view::npos && decode_base64(line.substr(0, space), bytes);
    const auto [stop, status] =
        shaped ? std::from_chars(line.data() + space + 1, line.data() + line.size(), id) : std::from_chars_result{nullptr, {}};
    if (!shaped || status != std::errc() || stop != line.data() + line.size() || id < 0 || id >= 1 << 24)
      throw DataError(text(name, ":", number, ": is not a token in base64 and its rank"));
    if (!by_id.emplace(id, bytes).second) throw DataError(text(name, ":", number, ": a second token of rank ", id));
    if (!ids.emplace(bytes, id).second) throw DataError(text(name, ":", number, ": the token of rank ", ids.at(bytes), " again"));
    highest = std::max(highest, id);
  }
  const Encoding& encoding = encoding_of(name, wanted, by_id.size());
  Bpe bpe{};
  bpe.patterns = {encoding.pattern};
  bpe.order = MergeOrder::by_token;
  bpe.whole_words = true;
  bpe.compose = encoding.compose;
  bpe.special = encoding.special;
  std::string end = encoding.end;
  if (by_id.size() != encoding.ranks) bpe.special = {{highest + 1, end = kEndOfText}};  // another vocabulary by this pattern
  for (const auto& [id, written] : bpe.special) {
    if (by_id.contains(id))
      throw DataError(text(name, ": has a token of rank ", id, ", which ", encoding.name, " calls ", written));
    highest = std::max(highest, id);
    if (written == end) bpe.end_of_document = id;
  }
  if (highest >= static_cast<int32_t>(2 * by_id.size() + 1024))
    throw DataError(text(name, ": ranks up to ", highest, " have too many gaps"));
  bpe.tokens.resize(static_cast<size_t>(highest) + 1);
  for (auto& [id, bytes] : by_id) bpe.tokens[static_cast<size_t>(id)] = std::move(bytes);
  add_merges(bpe);
  return bpe;
}

Bpe read_tiktoken(const std::string& path, const std::string& encoding) {
  return parse_tiktoken(read_file(path, kLargestFile, "ranks"), path, encoding);
}

}  // namespace trireme
