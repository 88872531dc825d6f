#include "data/documents/list_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

bool leads_nowhere(int problem) { return problem == ENOENT || problem == ENOTDIR || problem == ELOOP; }

[[noreturn]] void refuse_unreadable(const std::string& path, int problem) {
  throw DataError(path + ": cannot be read: " + std::strerror(problem));
}

// Facts of what a path names, of a link those of its target; nullopt: it names nothing. DataError for a link that leads nowhere,
// and for what cannot be read.
std::optional<struct stat> facts_of(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0) return facts;
  const int problem = errno;
  if (!leads_nowhere(problem)) refuse_unreadable(path, problem);
  if (lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode))
    throw DataError(path + ": is a link that leads nowhere (" + std::strerror(problem) +
                    "): restore its target, or remove the link");
  return std::nullopt;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  const auto stops = [](const char*, int problem) { return leads_nowhere(problem) ? 0 : 1; };
  const int status = glob(pattern.c_str(), 0, stops, &found);
  const int problem = errno;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (status == GLOB_ABORTED) throw DataError(pattern + ": a directory of this pattern cannot be read: " + std::strerror(problem));
  return paths;
}

// The files under a directory whose names end in a suffix. Links to directories are followed, except to one that holds the link.
class FilesUnder {
 public:
  explicit FilesUnder(const std::string& suffix) : suffix_(suffix) {}

  void add(const fs::path& directory, const struct stat& facts) {
    const std::pair<dev_t, ino_t> here{facts.st_dev, facts.st_ino};
    if (std::ranges::find(above_, here) != above_.end()) return;  // a loop, whose files are those found on the way down
    above_.push_back(here);
    std::error_code problem;
    for (fs::directory_iterator it(directory, problem); !problem && it != fs::directory_iterator(); it.increment(problem))
      add_entry(it->path());
    if (problem) refuse_unreadable(directory.string(), problem.value());
    above_.pop_back();
  }
  std::vector<std::string> sorted() && {
    std::sort(files_.begin(), files_.end());
    return std::move(files_);
  }

 private:
  void add_entry(const fs::path& path) {
    const std::string name = path.filename().string();
    if (name.starts_with('.')) return;
    const auto facts = facts_of(path.string());
    if (!facts) return;  // removed since its name was read
    if (S_ISDIR(facts->st_mode)) return add(path, *facts);
    if (S_ISREG(facts->st_mode) && name.ends_with(suffix_)) files_.push_back(path.string());
  }

  const std::string& suffix_;
  std::vector<std::string> files_;
  std::vector<std::pair<dev_t, ino_t>> above_;  // directories on the way down
};

// A shard that is being written, which a pattern may match.
bool is_unfinished(const std::string& path, const std::string& suffix) { return !suffix.empty() && path.ends_with(".tmp"); }

// The files of one input; none: it names nothing.
std::vector<std::string> files_of_input(const std::string& input, bool pattern, const std::string& suffix) {
  std::vector<std::string> files;
  for (const std::string& path : pattern ? matches(input) : std::vector<std::string>{input}) {
    const auto facts = facts_of(path);
    if (facts && S_ISDIR(facts->st_mode)) {
      FilesUnder inside(suffix);
      inside.add(path, *facts);
      for (std::string& file : std::move(inside).sorted()) files.push_back(std::move(file));
    } else if (facts && !(pattern && is_unfinished(path, suffix))) {
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace

std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix) {
  std::vector<std::string> files;
  std::unordered_set<std::string> seen;
  for (const std::string& input : inputs) {
    struct stat itself {};  // a link that leads nowhere is a name, and not a pattern
    const bool pattern = lstat(input.c_str(), &itself) != 0 && input.find_first_of("*?[") != std::string::npos;
    std::vector<std::string> found = files_of_input(input, pattern, suffix);
    if (input == kStandardInput) found.insert(found.begin(), input);
    if (found.empty()) {
      std::error_code none;
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
