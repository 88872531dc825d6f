#include "train/health/dead_segments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <string_view>

namespace trireme {
namespace {

constexpr int64_t kStatBlock = 512;  // bytes of st_blocks' unit

bool is_segment(std::string_view name) {
  constexpr std::array<std::string_view, 2> kNames{"vader_segment.", "sm_segment."};  // Open MPI 4, 5
  return std::ranges::any_of(kNames, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// Memory of the file that was removed; -1 if it stays. A write lease is granted only to the single opener of a file.
int64_t remove_if_dead(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return -1;
  struct stat opened {
  }, named{};
  int64_t bytes = -1;
  const bool ours = fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_uid == geteuid() && opened.st_nlink == 1;
  if (ours && fcntl(file, F_SETLEASE, F_WRLCK) == 0) {
    const bool same = lstat(path.c_str(), &named) == 0 && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
    if (same && unlink(path.c_str()) == 0) bytes = int64_t{opened.st_blocks} * kStatBlock;
    fcntl(file, F_SETLEASE, F_UNLCK);
  }
  close(file);
  return bytes;
}

}  // namespace

SweptSegments sweep_dead_segments(const std::string& directory) {
  SweptSegments swept;
  struct sigaction ignored {
  }, before{};  // SIGIO, if another process opens a file during its lease
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGIO, &ignored, &before);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!is_segment(entry.path().filename().string())) continue;
    if (const int64_t bytes = remove_if_dead(entry.path()); bytes >= 0) ++swept.files, swept.bytes += bytes;
  }
  sigaction(SIGIO, &before, nullptr);
  return swept;
}

}  // namespace trireme
