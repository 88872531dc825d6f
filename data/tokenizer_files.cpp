#include "data/tokenizer_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/hdf5_file.h"
#include "data/tokenizer_bpe.h"
#include "kernels/check.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestTokenizerJson = 256 << 20;

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

}  // namespace

TokenizerName parse_tokenizer_name(const std::string& name) {
  if (name == "bytes") return {TokenizerKind::bytes, "", ""};
  const size_t mark = name.rfind('@');
  const std::string path = name.substr(0, mark);
  if (mark != name.npos && (names_ranks(path) || names_model(path))) return {TokenizerKind::ranks, path, name.substr(mark + 1)};
  if (names_ranks(name) || (names_model(name) && begins_with_rank(name))) return {TokenizerKind::ranks, name, ""};
  return {names_model(name) ? TokenizerKind::sentencepiece : TokenizerKind::tokenizer_json, name, ""};
}

std::string read_tokenizer_file(const std::string& path, int64_t most, const char* what) {
  const File file = File::open_to_read(path);
  const int64_t size = file.size();
  if (size > most) throw DataError(text(path, ": ", size, " bytes are too many for ", what));
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read_at(bytes.data(), size, 0);
  return bytes;
}

std::string beside(const std::string& path, const std::string& name) { return fs::path(path).replace_filename(name).string(); }

std::string eos_token_beside(const std::string& path) {
  const std::string config = beside(path, "tokenizer_config.json");
  if (!fs::exists(config)) return "";
  const auto said =
      nlohmann::json::parse(read_tokenizer_file(config, kLargestTokenizerJson, "a tokenizer_config.json"), nullptr, false);
  if (!said.is_object()) throw DataError(config + ": is no JSON object");
  const auto eos = said.find("eos_token");
  if (eos == said.end() || eos->is_null()) return "";
  const auto& written = eos->is_object() && eos->contains("content") ? (*eos)["content"] : *eos;
  if (!written.is_string()) throw DataError(config + ": eos_token must be text, or an object with \"content\"");
  return written.get<std::string>();
}

Bpe read_tokenizer_json(const std::string& path) {
  const std::string pieces = beside(path, "tokenizer.model");
  return parse_tokenizer_json(read_tokenizer_file(path, kLargestTokenizerJson, "a tokenizer.json"), path,
                              {.eos_token = eos_token_beside(path), .sentencepiece = fs::exists(pieces) ? pieces : ""});
}

}  // namespace trireme
