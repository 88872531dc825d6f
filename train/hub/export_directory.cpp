#include "train/hub/export_directory.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/replace_file.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/problem.h"
#include "checkpoint/removal.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

// True for the files that an export writes.
bool is_exported(const std::string& name) {
  constexpr std::array kNames{kExportConfig,           "generation_config.json", "tokenizer.json",          "tokenizer.model",
                              "tokenizer_config.json", "chat_template.jinja",    "special_tokens_map.json", kExportIndex};
  const std::string whole = name.ends_with(kTemporary) ? name.substr(0, name.size() - 4) : name;
  return std::ranges::find(kNames, whole) != kNames.end() || (whole.starts_with("model") && whole.ends_with(".safetensors"));
}

}  // namespace

ExportDirectory::ExportDirectory(const std::string& directory, bool replace) : directory_(directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (!fs::is_directory(directory)) throw ConfigError(directory + ": cannot be created as a directory: " + problem.message());
  for (const std::string& name : exported())
    if (!replace)
      throw ConfigError(directory + "/" + name + ": the output already holds a model: choose another directory, or give --replace");
  remove_directory(Io(), partial(), "", is_exported);  // left by an export that was killed
  if (!fs::create_directory(partial(), problem)) throw ConfigError(directory + ": cannot be written to: " + problem.message());
}

ExportDirectory::~ExportDirectory() {
  problem_of([&] { remove_directory(Io(), partial(), "", is_exported); });
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

std::vector<std::string> ExportDirectory::exported() const {
  std::vector<std::string> names = names_in(Io(), directory_);
  std::erase_if(names, [](const std::string& name) { return name.ends_with(kTemporary) || !is_exported(name); });
  return names;
}

void write_export(const std::string& path, const std::string& text) {
  if (!replace_file_durably(path, text)) throw unwritable(path);
}

void copy_export(const std::string& from, const std::string& to) {
  constexpr int64_t kLargest = 256 << 20;
  write_export(to, read_file(from, kLargest, "a file of a tokenizer"));
}

}  // namespace trireme
