#include "train/run/fresh_run.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/run_lock.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kFiles{"lock",    "config.yaml",   "data.jsonl", "kernels.json", "peak.json",
                                                 "log.txt", "metrics.jsonl", "exit.json",  "report.html"};

// A file of a start that says nothing of any step, or an empty directory.
bool of_a_start(const fs::directory_entry& entry) {
  std::error_code error;
  const fs::path name = entry.path().extension() == ".tmp" ? entry.path().stem() : entry.path().filename();
  if (name == "checkpoints") return fs::is_empty(entry.path(), error) && !error;
  if (name == "metrics.jsonl") return entry.file_size(error) == 0 && !error;
  return std::ranges::find(kFiles, name.string()) != kFiles.end();
}

}  // namespace

FreshRun::FreshRun(std::string directory) : directory_(std::move(directory)) {
  std::error_code error;
  absent_ = !fs::exists(directory_, error) && !error;
}

bool FreshRun::remove(bool locked) const {
  std::error_code error;
  if (!absent_ || !fs::exists(directory_, error)) return false;
  try {
    std::optional<RunLock> lock;
    if (!locked) lock.emplace(directory_);
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_))
      if (!of_a_start(entry)) return false;
    return fs::remove_all(directory_) > 0;
  } catch (const std::exception&) {
    return false;  // what cannot be removed stays: the start has failed for another reason
  }
}

}  // namespace trireme
