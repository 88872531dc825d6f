#include "checkpoint/removal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "checkpoint/directory_layout.h"

namespace trireme {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw CheckpointError(text(what, ": ", strerror(errno))); }

// An open directory, found from another one without following a link.
class Directory {
 public:
  Directory(const Io& io, int from, const std::string& name, int flags)
      : io_(io), fd_(retried([&] { return io.openat(from, name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY | flags); })) {}
  ~Directory() {
    const int reason = errno;
    if (fd_ >= 0) io_.close(fd_);
    errno = reason;
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return fd_; }
  // False, with errno, if there is no such entry or it cannot be looked at. "": the directory.
  bool look(const std::string& name, struct stat& facts) const {
    const int how = name.empty() ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
    return retried([&] { return io_.fstatat(fd_, name.c_str(), &facts, how); }) == 0;
  }
  bool remove(const std::string& name, int flags) const {
    return retried([&] { return io_.unlinkat(fd_, name.c_str(), flags); }) == 0 || errno == ENOENT;
  }

 private:
  const Io& io_;
  int fd_;
};

bool belongs(const struct stat& facts, const struct stat& holder) {
  return facts.st_uid == geteuid() || facts.st_uid == holder.st_uid;
}

// Removes the program's own files of an open directory. Returns the names of the others.
std::vector<std::string> remove_own(const Io& io, const Directory& directory, const std::string& path, const std::string& first,
                                    const OwnName& own) {
  std::vector<std::string> names, others;
  if (retried([&] { return names.clear(), io.list(directory.fd(), names); }) != 0) refuse("cannot list " + path);
  std::sort(names.begin(), names.end());
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return name == first; });
  struct stat holder, facts;
  if (!directory.look("", holder)) refuse("cannot look at " + path);
  for (const std::string& name : names) {
    if (!directory.look(name, facts)) {
      if (errno == ENOENT) continue;
      refuse("cannot look at " + path + "/" + name);
    }
    const bool file = S_ISREG(facts.st_mode) || S_ISLNK(facts.st_mode);
    if (!file || !own(name) || !belongs(facts, holder))
      others.push_back(name);
    else if (!directory.remove(name, 0))
      refuse("cannot delete " + path + "/" + name);
  }
  return others;
}

std::pair<std::string, std::string> parent_and_name(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  const std::string parent = whole.parent_path();
  return {parent.empty() ? "." : parent, whole.filename()};
}

bool all_digits(std::string_view word) { return !word.empty() && word.find_first_not_of("0123456789") == word.npos; }

}  // namespace

bool is_checkpoint_file(const std::string& name) {
  const std::string_view made = std::string_view(name).substr(0, name.size() - (name.ends_with(kTemporary) ? 4 : 0));
  if (made == kManifestName) return true;
  constexpr std::string_view kBegin = "shard-", kEnd = ".h5";
  return made.size() > kBegin.size() + kEnd.size() && made.starts_with(kBegin) && made.ends_with(kEnd) &&
         all_digits(made.substr(kBegin.size(), made.size() - kBegin.size() - kEnd.size()));
}

void remove_directory(const Io& io, const std::string& path, const std::string& first, const OwnName& own) {
  const auto [holder, name] = parent_and_name(path);
  const Directory parent(io, AT_FDCWD, holder, 0);
  if (parent.fd() < 0 && errno == ENOENT) return;
  if (parent.fd() < 0) refuse("cannot open directory " + holder);
  struct stat facts, around;
  if (!parent.look(name, facts)) {
    if (errno == ENOENT) return;
    refuse("cannot look at " + path);
  }
  if (S_ISLNK(facts.st_mode)) {
    if (!parent.remove(name, 0)) refuse("cannot delete the link " + path);
    return;
  }
  if (!S_ISDIR(facts.st_mode))
    throw CheckpointError(path + " is not a directory, so not of this program: it is left; move it away");
  if (!parent.look("", around)) refuse("cannot look at " + holder);
  if (!belongs(facts, around)) throw CheckpointError(text(path, " belongs to user ", facts.st_uid, ": it is left; move it away"));
  std::vector<std::string> others;
  {
    const Directory directory(io, parent.fd(), name, O_NOFOLLOW);
    if (directory.fd() < 0) refuse("cannot open directory " + path);
    others = remove_own(io, directory, path, first, own);
  }
  if (others.empty()) {
    if (!parent.remove(name, AT_REMOVEDIR)) refuse("cannot delete directory " + path);
    return;
  }
  const std::string more = others.size() > 1 ? std::string(text(" and ", others.size() - 1, " more")) : "";
  throw CheckpointError(text(path, " holds ", others.front(), more, ", which is not of this program: it is left; move it away"));
}

void remove_file(const Io& io, const std::string& path) {
  if (retried([&] { return io.unlinkat(AT_FDCWD, path.c_str(), 0); }) != 0 && errno != ENOENT) refuse("cannot delete " + path);
}

}  // namespace trireme
