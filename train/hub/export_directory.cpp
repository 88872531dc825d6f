#include "train/hub/export_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/replace_file.h"

namespace trireme {

namespace fs = std::filesystem;

ExportDirectory::ExportDirectory(const std::string& directory, bool replace) : directory_(directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (!fs::is_directory(directory)) throw ConfigError(directory + ": cannot be created as a directory: " + problem.message());
  for (const std::string& name : exported())
    if (!replace)
      throw ConfigError(directory + "/" + name + ": the output already holds a model: choose another directory, or give --replace");
  fs::remove_all(partial(), problem);
  if (!fs::create_directory(partial(), problem)) throw ConfigError(directory + ": cannot be written to: " + problem.message());
}

ExportDirectory::~ExportDirectory() {
  std::error_code ignored;
  fs::remove_all(partial(), ignored);
}

void ExportDirectory::commit() const {
  fs::remove(directory_ + "/" + kExportConfig);
  sync_directory(directory_);
  for (const std::string& name : exported()) fs::remove(directory_ + "/" + name);
  for (const auto& entry : fs::directory_iterator(partial()))
    if (entry.path().filename() != kExportConfig) fs::rename(entry.path(), directory_ + "/" + entry.path().filename().string());
  sync_directory(directory_);
  commit_file(partial() + "/" + kExportConfig, directory_ + "/" + kExportConfig);
}

// Names of the files that an export writes, as far as they are here.
std::vector<std::string> ExportDirectory::exported() const {
  constexpr std::array kNames{kExportConfig,           "generation_config.json", "tokenizer.json",          "tokenizer.model",
                              "tokenizer_config.json", "chat_template.jinja",    "special_tokens_map.json", kExportIndex};
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    if (std::ranges::find(kNames, name) != kNames.end() || (name.starts_with("model") && name.ends_with(".safetensors")))
      names.push_back(name);
  }
  return names;
}

void write_export(const std::string& path, const std::string& text) {
  if (!replace_file_durably(path, text)) throw unwritable(path);
}

void copy_export(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) throw DataError(from + ": cannot be read");
  write_export(to, bytes.str());
}

}  // namespace trireme
