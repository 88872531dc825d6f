// Checks by a user for whom permissions count: root may read and write everything.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "test/data/scratch.h"

// The result of `holds`. For root, a child process finds it as user nobody, to whom the scratch directory is given; nullopt: this
// machine has no such user, or that one does not reach the directory. `holds` starts no threads.
inline std::optional<bool> holds_without_root(const Scratch& scratch, const std::function<bool()>& holds) {
  constexpr uid_t kNobody = 65534;
  constexpr int kNo = 1, kNoUser = 2;
  if (geteuid() != 0) return holds();
  bool given = lchown(scratch.path().c_str(), kNobody, kNobody) == 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.path()))
    given = lchown(entry.path().c_str(), kNobody, kNobody) == 0 && given;
  if (!given) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    const bool left = setgid(kNobody) == 0 && setuid(kNobody) == 0 && access(scratch.path().c_str(), R_OK | X_OK) == 0;
    bool good = false;
    try {
      good = left && holds();
    } catch (...) {  // not as it should be
    }
    _exit(!left ? kNoUser : good ? 0 : kNo);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return false;
  if (WEXITSTATUS(status) == kNoUser) return std::nullopt;
  return WEXITSTATUS(status) == 0;
}
