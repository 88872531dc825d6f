#include "data/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/hdf5_file.h"
#include "data/tokenizer_bpe.h"
#include "kernels/check.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestTokenizerJson = 256 << 20;

}  // namespace

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
  return parse_tokenizer_json(read_tokenizer_file(path, kLargestTokenizerJson, "a tokenizer.json"), path,
                              {.eos_token = eos_token_beside(path)});
}

}  // namespace trireme
