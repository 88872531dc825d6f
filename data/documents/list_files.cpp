#include "data/documents/list_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

[[noreturn]] void refuse_link(const std::string& path, const std::error_code& problem) {
  throw DataError(path + ": is a link that leads nowhere (" + (problem ? problem.message() : "its target is missing") +
                  "): restore its target, or remove the link");
}

std::vector<std::string> files_under(const std::string& directory, const std::string& suffix) {
  std::vector<std::string> files;
  for (auto it = fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied);
       it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    std::error_code problem;
    if (name.starts_with('.')) {
      if (it->is_directory(problem)) it.disable_recursion_pending();
    } else if (it->is_regular_file(problem) && name.ends_with(suffix)) {
      files.push_back(it->path().string());
    } else if (it->is_symlink(problem) && name.ends_with(suffix) && !fs::exists(it->path(), problem)) {
      refuse_link(it->path().string(), problem);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix) {
  std::vector<std::string> files;
  std::unordered_set<std::string> seen;
  for (const std::string& input : inputs) {
    std::error_code unfollowed, none;
    const bool pattern = !fs::exists(input, unfollowed) && input.find_first_of("*?[") != std::string::npos;
    std::vector<std::string> found;
    if (input == kStandardInput) found.push_back(input);
    for (const std::string& path : pattern ? matches(input) : std::vector<std::string>{input}) {
      std::error_code problem;
      if (fs::is_directory(path, problem)) {
        const auto inside = files_under(path, suffix);
        found.insert(found.end(), inside.begin(), inside.end());
      } else if (fs::exists(path, problem)) {
        found.push_back(path);
      }
    }
    if (found.empty()) {
      if (fs::is_symlink(input, none)) refuse_link(input, unfollowed);
      const bool empty = fs::is_directory(input, none);
      throw DataError(input + ": " +
                      (empty     ? "no " + (suffix.empty() ? "files" : "*" + suffix) + " under this directory"
                       : pattern ? "no file matches this pattern"
                                 : "no such file or directory"));
    }
    for (std::string& path : found)
      if (seen.insert(path).second) files.push_back(std::move(path));
  }
  return files;
}

}  // namespace trireme
