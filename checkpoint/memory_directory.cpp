#include "checkpoint/memory_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/replace_file.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/problem.h"
#include "checkpoint/removal.h"

namespace trireme {

namespace {

// True for a directory, not a link, that belongs to this user alone.
bool is_our_own(const std::string& path) {
  struct stat facts;
  return lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0;
}

void make_our_own(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw ConfigError(text("checkpoint.memory_every: cannot make ", path, ": ", strerror(errno)));
  if (!is_our_own(path)) throw ConfigError(text("checkpoint.memory_every: ", path, " is not a directory of this user alone"));
}

// Returns "" if there is no such file. ConfigError if it cannot be read: then nothing is known.
std::string first_line(const std::string& path) {
  const int file = retried([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return "";
  std::array<char, 4096> bytes;
  size_t size = 0;
  ssize_t n = file < 0 ? -1 : 1;
  while (n > 0 && size < bytes.size()) {
    n = retried([&] { return read(file, bytes.data() + size, bytes.size() - size); });
    size += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  const int reason = errno;
  if (file >= 0) close(file);
  if (n < 0) throw ConfigError(text("checkpoint.memory_every: cannot read ", path, ": ", strerror(reason), "; try again"));
  const std::string line(bytes.data(), size);
  return line.substr(0, line.find('\n'));
}

// Writes the whole line or nothing.
void write_line(const std::string& path, const std::string& line) {
  if (!replace_file(path, line + "\n"))
    throw ConfigError(text("checkpoint.memory_every: cannot write ", path, ": ", strerror(errno)));
}

std::string root() { return "/dev/shm/trireme-" + std::to_string(geteuid()); }

std::string whole_path(const std::string& run) { return std::filesystem::absolute(run).lexically_normal(); }

// Calls tier(directory, token, run) for each memory directory of this user.
template <class Tier>
void for_each_tier(Tier tier) {
  std::error_code error;
  if (!is_our_own(root())) return;
  for (std::filesystem::directory_iterator i(root(), error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename(), token = name.substr(0, name.find('-'));
    // One that cannot be read is left alone.
    if (from_hex(token)) problem_of([&] { tier(i->path(), token, first_line(i->path() / "run")); });
  }
}

}  // namespace

std::string memory_directory(const std::string& token) { return root() + "/" + token; }

std::string memory_token(const std::string& run_directory) {
  const std::string token = first_line(run_directory + "/memory");
  return from_hex(token) ? token : "";
}

void keep_memory_token(const std::string& run_directory, const std::string& token) { write_line(run_directory + "/memory", token); }

void drop_memory_token(const std::string& run_directory) { unlink((run_directory + "/memory").c_str()); }

Owner owner_of(const std::string& directory, const std::string& run) {
  std::error_code error;
  if (!std::filesystem::exists(directory, error)) return error ? Owner::another : Owner::nobody;
  if (!is_our_own(root()) || !is_our_own(directory)) return Owner::another;
  const std::string owner = first_line(directory + "/run");
  if (owner.empty()) return Owner::nobody;  // its creation was interrupted
  return owner == whole_path(run) ? Owner::we : Owner::another;
}

void make_memory_directory(const std::string& directory, const std::string& run) {
  if (!std::filesystem::is_directory("/dev/shm"))
    throw ConfigError("checkpoint.memory_every: this machine has no /dev/shm; set it to 0");
  make_our_own(root());
  make_our_own(directory);
  if (owner_of(directory, run) != Owner::we) write_line(directory + "/run", whole_path(run));
}

void remove_memory_directory(const std::string& directory) {
  const Io io;
  if (!is_our_own(directory)) return;
  for (const std::string& name : names_in(io, directory))
    if (is_step_directory(name)) remove_directory(io, directory + "/" + name, kManifestName);
  // First the name of its run: who then waits for the lock writes it anew.
  remove_directory(io, directory, "run", [](const std::string& name) {
    return name == "run" || name == std::string("run") + kTemporary || name == "lock";
  });
}

std::vector<std::string> sweep_memory_directories(const std::string& run_directory) {
  std::vector<std::string> removed;
  for_each_tier([&](const std::filesystem::path& directory, const std::string& token, const std::string& run) {
    const bool visible = !run.empty() && std::filesystem::is_directory(std::filesystem::path(run).parent_path());
    if (!visible || first_line(run + "/memory") == token) return;
    problem_of([&] {
      const std::vector<int64_t> steps = steps_in(Io(), directory);
      remove_memory_directory(directory);
      if (run == whole_path(run_directory) && !steps.empty())
        removed.push_back(
            text("checkpoints in memory up to step ", steps.back(), " are removed: RUN/memory does not name their token ", token));
    });
  });
  return removed;
}

std::vector<std::string> memory_directories_of(const std::string& run_directory) {
  std::vector<std::string> found;
  const std::string wanted = memory_token(run_directory), whole = whole_path(run_directory);
  for_each_tier([&](const std::string& directory, const std::string& token, const std::string& run) {
    if (token == wanted && run == whole) found.push_back(directory);
  });
  return found;
}

}  // namespace trireme
