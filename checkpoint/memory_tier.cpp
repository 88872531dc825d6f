#include "checkpoint/memory_tier.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/digest.h"
#include "kernels/check.h"

namespace trireme {

namespace {

// A directory, no link, that belongs to this user alone.
bool is_our_own(const std::string& path) {
  struct stat facts;
  return lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0;
}

void make_our_own(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw ConfigError(text("checkpoint.memory_every: cannot make ", path, ": ", strerror(errno)));
  if (!is_our_own(path)) throw ConfigError(text("checkpoint.memory_every: ", path, " is not a directory of this user alone"));
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void write_line(const std::string& path, const std::string& line) {
  std::ofstream out(path, std::ios::trunc);
  out << line << '\n' << std::flush;
  if (!out) throw ConfigError(text("checkpoint.memory_every: cannot write ", path, ": ", strerror(errno)));
}

std::string root() { return "/dev/shm/trireme-" + std::to_string(geteuid()); }

std::string whole_path(const std::string& run) { return std::filesystem::absolute(run).lexically_normal(); }

}  // namespace

std::string memory_tier(const std::string& run_directory) {
  const std::string token = first_line(run_directory + "/memory"), there = root() + "/" + token;
  const bool ours =
      from_hex(token) && is_our_own(root()) && is_our_own(there) && first_line(there + "/run") == whole_path(run_directory);
  return ours ? there : "";
}

std::string make_memory_tier(const std::string& run_directory, const std::string& token) {
  if (!std::filesystem::is_directory("/dev/shm"))
    throw ConfigError("checkpoint.memory_every: there is no /dev/shm here; set it to 0");
  const std::string there = root() + "/" + token;
  make_our_own(root());
  make_our_own(there);
  write_line(there + "/run", whole_path(run_directory));
  write_line(run_directory + "/memory", token);
  return there;
}

void sweep_memory_tiers() {
  std::error_code error;
  if (!is_our_own(root())) return;
  for (std::filesystem::directory_iterator i(root(), error), end; !error && i != end; i.increment(error)) {
    const std::string token = i->path().filename(), run = first_line(i->path() / "run");
    const bool visible = !run.empty() && std::filesystem::is_directory(std::filesystem::path(run).parent_path());
    std::error_code ignored;
    if (from_hex(token) && visible && first_line(run + "/memory") != token) std::filesystem::remove_all(i->path(), ignored);
  }
}

}  // namespace trireme
