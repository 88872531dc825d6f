#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"
#include "base/json_file.h"
#include "base/replace_file.h"
#include "base/text_stream.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestMerges = 64 << 20;  // bytes
constexpr JsonLimits kTokenizerConfig{.bytes = 16 << 20, .values = 1'000'000}, kVocabulary{.bytes = 64 << 20, .values = 2'000'000};

bool names_model(std::string_view path) { return path.ends_with(".model"); }
bool names_ranks(std::string_view path) { return path.ends_with(".tiktoken"); }

// A token in base64, a space and a digit: no protobuf begins so.
bool begins_with_rank(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 4096)), '\0');
  file.read_at(start.data(), std::ssize(start), 0);
  const size_t space = start.find(' ');
  return space != start.npos && space + 1 < start.size() && std::isdigit(static_cast<uint8_t>(start[space + 1])) != 0 &&
         std::all_of(start.begin(), start.begin() + static_cast<ptrdiff_t>(space), [](char c) { return c > ' ' && c < 0x7f; });
}

// "": `path` is not called as a vocabulary, or its merges are not there.
std::string merges_beside(const std::string& path) {
  constexpr std::string_view kVocabulary = "vocab.json";
  std::string name = fs::path(path).filename().string();
  if (!name.ends_with(kVocabulary)) return "";
  name.replace(name.size() - kVocabulary.size(), kVocabulary.size(), "merges.txt");
  const std::string merges = beside(path, name);
  return fs::exists(merges) ? merges : "";
}

// Lines of two tokens, the first of which may be a comment.
Json read_merge_lines(const std::string& path) {
  TextReader lines(read_file(path, kLargestMerges, "merges"));
  Json merges = Json::array();
  bool first = true;
  for (std::string line; std::getline(lines, line); first = false) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !(first && line.starts_with("#version"))) merges.push_back(std::move(line));
    if (std::ssize(merges.items()) > kTokenizerJson.values / 2)
      throw DataError(text(path, ": has more than ", kTokenizerJson.values / 2, " merges"));
  }
  return merges;
}

}  // namespace

TokenizerName parse_tokenizer_name(const std::string& name) {
  if (name == "bytes") return {TokenizerKind::bytes, "", ""};
  const size_t mark = name.rfind('@');
  const std::string path = name.substr(0, mark);
  if (mark != name.npos && (names_ranks(path) || names_model(path))) return {TokenizerKind::ranks, path, name.substr(mark + 1)};
  if (names_ranks(name) || (names_model(name) && begins_with_rank(name))) return {TokenizerKind::ranks, name, ""};
  if (names_model(name)) return {TokenizerKind::sentencepiece, name, ""};
  if (fs::is_directory(name))
    throw DataError(name + ": is a directory: name the tokenizer.json, tokenizer.model or vocab.json in it");
  if (!fs::exists(name) && may_be_hub_name(name) && !name.ends_with(".json"))
    throw DataError(text(name, ": no such file; fetch a published tokenizer with 'hf download ", name,
                         " tokenizer.json --local-dir models/", fs::path(name).filename().string(),
                         "' and name its tokenizer.json"));
  return {merges_beside(name).empty() ? TokenizerKind::tokenizer_json : TokenizerKind::vocabulary, name, ""};
}

std::string beside(const std::string& path, const std::string& name) { return fs::path(path).replace_filename(name).string(); }

std::string eos_token_beside(const std::string& path) {
  const std::string config = beside(path, "tokenizer_config.json");
  if (!fs::exists(config)) return "";
  const Json said = read_json(config, kTokenizerConfig, "a tokenizer_config.json");
  if (!said.is_object()) throw DataError(config + ": is not a JSON object");
  const auto eos = said.find("eos_token");
  if (eos == nullptr || eos->is_null()) return "";
  const auto& written = eos->is_object() && eos->contains("content") ? (*eos)["content"] : *eos;
  if (!written.is_string()) throw DataError(config + ": eos_token must be text, or an object with \"content\"");
  return written.get<std::string>();
}

Bpe read_tokenizer_json(const std::string& path) {
  const std::string pieces = beside(path, "tokenizer.model");
  return bpe_of_json(read_json(path, kTokenizerJson, "a tokenizer.json"), path,
                     {.eos_token = eos_token_beside(path), .sentencepiece = fs::exists(pieces) ? pieces : ""});
}

Bpe read_vocabulary(const std::string& path) {
  Json vocab = read_json(path, kVocabulary, "a vocab.json");
  if (!vocab.is_object()) throw DataError(path + ": is not a JSON object of tokens and their ids");
  const std::string said = eos_token_beside(path), end = !said.empty() && vocab.contains(said) ? said : kEndOfText;
  if (!vocab.contains(end))
    throw DataError(
        text(path, ": has no token ", kEndOfText,
             " to end documents with: name the one that does as {\"eos_token\": \"...\"} in a tokenizer_config.json beside "
             "it, or give the tokenizer.json of the same tokenizer"));
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  Json same{{"added_tokens", {{{"content", end}, {"id", vocab[end]}, {"special", true}}}},
            {"pre_tokenizer", byte_level},
            {"decoder", byte_level},
            {"model", {{"type", "BPE"}}}};
  same["model"]["vocab"] = std::move(vocab);
  same["model"]["merges"] = read_merge_lines(merges_beside(path));
  return bpe_of_json(same, path, {.eos_token = end});
}

void save_tokenizer_json(const Bpe& bpe, const std::string& path) {
  if (!replace_file_durably(path, tokenizer_json(bpe))) throw unwritable(path);
}

}  // namespace trireme
