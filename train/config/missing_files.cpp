#include "train/config/missing_files.h"

#include <filesystem>

#include "base/error.h"
#include "data/documents/list_files.h"

namespace trireme {
namespace {

// "" if the path names something.
std::string problem_of_path(const std::string& path, const std::string& suffix) {
  try {
    list_files({path}, suffix);
    return "";
  } catch (const DataError& error) {
    const std::string message = error.what();
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  }
}

bool tokenizer_exists(const std::string& name) {
  const std::string file = name.substr(0, name.rfind('@'));  // FILE.tiktoken@cl100k
  return name == "bytes" || std::filesystem::exists(name) || std::filesystem::exists(file);
}

}  // namespace

std::vector<MissingFile> missing_files(const RunConfig& config) {
  std::vector<MissingFile> missing;
  const auto check = [&](const char* key, const std::vector<std::string>& paths, const char* suffix) {
    for (const std::string& path : paths)
      if (const std::string problem = problem_of_path(path, suffix); !problem.empty())
        missing.push_back({.key = key, .path = path, .problem = problem});
  };
  check("data.train", config.data.train, ".h5");
  check("data.validation", config.data.validation, ".h5");
  check("data.exclude", config.data.exclude, "");
  check("train.eval_choices", config.train.eval_choices, "");
  if (const std::string& name = config.data.tokenizer; !name.empty() && !tokenizer_exists(name))
    missing.push_back({.key = "data.tokenizer", .path = name, .problem = "no such file"});
  return missing;
}

}  // namespace trireme
