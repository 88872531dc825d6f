#include "train/run/fresh_run.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/removal.h"
#include "checkpoint/run_lock.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 11> kFiles{"run.id",       "lock",        "config.yaml", "data.jsonl",
                                                  "kernels.json", "peak.json",   "log.txt",     "metrics.jsonl",
                                                  "exit.json",    "report.html", "starts.jsonl"};

bool is_file_of_a_start(const std::string& name) {
  return std::ranges::find(kFiles, name.ends_with(".tmp") ? name.substr(0, name.size() - 4) : name) != kFiles.end();
}

// A file of a start that says nothing of any step, or an empty directory.
bool of_a_start(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename();
  if (name == "checkpoints") return fs::is_empty(entry.path(), error) && !error;
  if (name == "metrics.jsonl") return entry.file_size(error) == 0 && !error;
  return is_file_of_a_start(name);
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
    const Io io;
    remove_directory(io, directory_ + "/checkpoints", "");
    remove_directory(io, directory_, "", [](const std::string& name) { return is_file_of_a_start(name); });
    return true;
  } catch (const std::exception&) {
    return false;  // what cannot be removed stays: the start has failed for another reason
  }
}

}  // namespace trireme
