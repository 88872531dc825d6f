#include "data/documents/list_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kWildcards = "*?[";

bool leads_nowhere(int problem) { return problem == ENOENT || problem == ENOTDIR || problem == ELOOP; }

[[noreturn]] void refuse_unreadable(const std::string& path, int problem) {
  throw DataError(path + ": cannot be read: " + std::strerror(problem));
}

// Facts of what a path names, of a link those of its target; nullopt: it names nothing. DataError for what cannot be read, and for
// a link that leads nowhere, if such links are refused.
std::optional<struct stat> facts_of(const std::string& path, bool refuse_lost_link = true) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0) return facts;
  const int problem = errno;
  if (!leads_nowhere(problem)) refuse_unreadable(path, problem);
  if (refuse_lost_link && lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode))
    throw DataError(path + ": is a link that leads nowhere (" + std::strerror(problem) +
                    "): restore its target, or remove the link");
  return std::nullopt;
}

// True for a directory that a file system keeps for itself, and that most users may not read.
bool is_of_file_system(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  std::error_code none;
  return (name == "lost+found" || name == "System Volume Information") && fs::is_directory(path, none);
}

// A literal path as a pattern.
std::string escaped(const std::string& path) {
  std::string pattern;
  for (const char c : path) pattern += c == '\\' || kWildcards.find(c) != kWildcards.npos ? std::string{'\\', c} : std::string{c};
  return pattern;
}

std::string without_escapes(const std::string& pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    path += pattern[i];
  }
  return path;
}

// Adds the paths in `directory` ("", or it ends in a slash) that one component of a pattern matches. DataError for what cannot be
// read. glob() itself would not name the directory, and passes over it if the component is a plain name.
void add_matches(const std::string& directory, const std::string& component, std::vector<std::string>& paths) {
  if (component.find_first_of(kWildcards) == component.npos) {
    const std::string path = directory + without_escapes(component);
    struct stat facts {};
    if (lstat(path.c_str(), &facts) == 0) return paths.push_back(path);
    if (const int problem = errno; !leads_nowhere(problem)) refuse_unreadable(path, problem);
    return;
  }
  glob_t found{};
  const auto stops = [](const char*, int problem) { return leads_nowhere(problem) ? 0 : 1; };
  const int status = glob((escaped(directory) + component).c_str(), 0, stops, &found);
  const int problem = errno;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    const std::string match = found.gl_pathv[i], path = directory + match.substr(match.rfind('/') + 1);
    if (!is_of_file_system(path)) paths.push_back(path);
  }
  globfree(&found);
  if (status == GLOB_ABORTED) refuse_unreadable(directory.empty() ? "." : fs::path(directory).parent_path().string(), problem);
}

// The paths that a pattern matches, sorted.
std::vector<std::string> matches(const std::string& pattern) {
  std::vector<std::string> paths{""};
  for (size_t at = 0; at < pattern.size();) {
    const size_t begin = std::min(pattern.find_first_not_of('/', at), pattern.size());
    const size_t end = std::min(pattern.find('/', begin), pattern.size());
    std::vector<std::string> longer;
    for (const std::string& path : paths)
      add_matches(path + pattern.substr(at, begin - at), pattern.substr(begin, end - begin), longer);
    paths = std::move(longer);
    at = end;
  }
  std::ranges::sort(paths);
  return paths;
}

struct ListedFile {
  std::string path{}, real{};  // real: without links, by which it is known again
  int links = 0;               // on the path
};

// The path without links of what exists; otherwise the path itself.
std::string real_path(const std::string& path) {
  std::error_code problem;
  const fs::path real = fs::canonical(path, problem);
  return problem ? path : real.string();
}

// Finds the links on paths. It looks at each directory once.
class LinksOnPaths {
 public:
  ListedFile find(const std::string& path) {
    const size_t name_at = path.rfind('/') + 1;  // 0 without a slash
    const std::string name = path.substr(name_at);
    const ListedFile& parent = directory(name_at == 0 ? "./" : path.substr(0, name_at));
    const bool link = is_link(path);
    if (link || name.empty() || name == "." || name == "..") return {path, real_path(path), parent.links + (link ? 1 : 0)};
    return {path, (fs::path(parent.real) / name).string(), parent.links};
  }

 private:
  static bool is_link(const std::string& path) {
    std::error_code none;
    return fs::is_symlink(path, none);
  }
  // `path` ends in a slash.
  const ListedFile& directory(const std::string& path) {
    const auto [known, fresh] = directories_.try_emplace(path);
    if (!fresh) return known->second;
    known->second = {path, real_path(path), 0};
    for (size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1))
      if (is_link(path.substr(0, end))) ++known->second.links;
    return known->second;
  }

  std::unordered_map<std::string, ListedFile> directories_;
};

// The files under a directory whose names end in a suffix. Links are followed last, and add only what is not there without them.
class FilesUnder {
 public:
  explicit FilesUnder(const std::string& suffix) : suffix_(suffix) {}

  // The files, sorted by their paths. `directory` is one.
  std::vector<ListedFile> list(const ListedFile& directory) {
    links_followed_ = directory.links;
    walk(directory.path, directory.real);
    while (!links_.empty()) {
      ++links_followed_;
      std::vector<std::string> links = std::exchange(links_, {});
      std::ranges::sort(links);
      for (const std::string& link : links)
        if (const auto facts = facts_of(link, link.ends_with(suffix_))) add(link, real_path(link), *facts);
    }
    std::ranges::sort(files_, {}, &ListedFile::path);
    return std::move(files_);
  }

 private:
  void walk(const std::string& directory, const std::string& real) {
    if (!seen_.insert(real).second) return;
    std::error_code problem, unknown;
    for (fs::directory_iterator it(directory, problem); !problem && it != fs::directory_iterator(); it.increment(problem)) {
      const std::string path = it->path().string(), name = it->path().filename().string();
      if (name.starts_with('.')) continue;
      if (it->is_symlink(unknown))
        links_.push_back(path);
      else if (const auto facts = facts_of(path))  // else removed since its name was read
        add(path, (fs::path(real) / name).string(), *facts);
    }
    if (problem) refuse_unreadable(directory, problem.value());
  }
  void add(const std::string& path, const std::string& real, const struct stat& facts) {
    if (S_ISDIR(facts.st_mode) && !is_of_file_system(path)) walk(path, real);
    if (S_ISREG(facts.st_mode) && path.ends_with(suffix_) && seen_.insert(real).second)
      files_.push_back({path, real, links_followed_});
  }

  const std::string& suffix_;
  std::vector<ListedFile> files_;
  std::unordered_set<std::string> seen_;  // real paths of directories and files
  std::vector<std::string> links_;        // to follow
  int links_followed_ = 0;
};

// A shard that is being written, which a pattern may match.
bool is_unfinished(const std::string& path, const std::string& suffix) { return !suffix.empty() && path.ends_with(".tmp"); }

// The files of one input; none: it names nothing.
std::vector<ListedFile> files_of_input(const std::string& input, bool pattern, const std::string& suffix, LinksOnPaths& links) {
  if (input == kStandardInput) return {ListedFile{.path = input, .real = input}};
  std::vector<ListedFile> files;
  for (const std::string& path : pattern ? matches(input) : std::vector<std::string>{input}) {
    const auto facts = facts_of(path);
    if (facts && S_ISDIR(facts->st_mode)) {
      for (ListedFile& file : FilesUnder(suffix).list(links.find(path))) files.push_back(std::move(file));
    } else if (facts && !(pattern && is_unfinished(path, suffix))) {
      files.push_back(links.find(path));
    }
  }
  return files;
}

// Adds the files of one input that are not there yet, each by the path with the fewest links.
void add_unseen(std::vector<ListedFile> found, std::unordered_set<std::string>& seen, std::vector<std::string>& files) {
  std::unordered_map<std::string, size_t> chosen;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [best, fresh] = chosen.try_emplace(found[i].real, i);
    if (!fresh && found[i].links < found[best->second].links) best->second = i;
  }
  for (size_t i = 0; i < found.size(); ++i)
    if (chosen.at(found[i].real) == i && seen.insert(found[i].real).second) files.push_back(std::move(found[i].path));
}

}  // namespace

std::vector<std::string> list_files(const std::vector<std::string>& inputs, const std::string& suffix) {
  std::vector<std::string> files;
  std::unordered_set<std::string> seen;
  LinksOnPaths links;
  for (const std::string& input : inputs) {
    struct stat itself {};  // a link that leads nowhere is a name, and not a pattern
    const bool pattern = lstat(input.c_str(), &itself) != 0 && input.find_first_of(kWildcards) != std::string::npos;
    std::vector<ListedFile> found = files_of_input(input, pattern, suffix, links);
    if (found.empty()) {
      std::error_code none;
      const bool empty = fs::is_directory(input, none);
      throw DataError(input + ": " +
                      (empty     ? "no " + (suffix.empty() ? "files" : "*" + suffix) + " under this directory"
                       : pattern ? "no file matches this pattern"
                                 : "no such file or directory"));
    }
    add_unseen(std::move(found), seen, files);
  }
  return files;
}

}  // namespace trireme
