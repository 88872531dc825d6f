// Retention: the checkpoints of a run in one directory. New ones are committed to it, old ones leave it. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/commit_command.h"
#include "checkpoint/config.h"
#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_lock.h"

namespace trireme {

// All files of its checkpoints, or only some of each: of a node of several.
enum class Holds { all, some };

class Retention {
 public:
  // What is kept: the newest `keep` that are valid, at least two, and each whose step is a multiple of `keep_every`, if that is
  // not 0. `io` outlives this.
  Retention(const Io& io, std::string directory, const CheckpointConfig& config, Holds holds = Holds::all);

  // Makes the checkpoint that `manifest` describes of the directory `staged`, in which its files are complete, on disk and re-read;
  // then deletes what is no longer kept. Returns the checkpoint's bytes; 0 when this very state of this step was already there.
  // `staged` is gone afterwards, also when it throws: CheckpointError when the disk refuses, when the lock is no longer ours, or
  // when no tensor has changed since an earlier step's save, although the counter "updates", if there is one, has; Error when the
  // manifest cannot be one.
  int64_t commit(const std::string& staged, const Manifest& manifest, const RunLock& lock);
  void discard(const std::string& staged);

  // The state that the next save must differ from: of a restore.
  void follows(const Manifest& restored);
  // Runs `command` for each step that is committed from here on, and for the newest that is there if it has not seen that; what it
  // prints is appended to RUN/checkpoint_command.log. Until then the step is kept.
  void after_commit(const std::string& command, const std::string& run_directory);
  void wait_for_command() {
    if (command_) command_->finish();
  }
  // Called before each commit: what must be on disk with it.
  void before_commit(std::function<void()> call) { before_commit_ = std::move(call); }

  std::vector<std::string> take_warnings();

 private:
  bool already_there(const Manifest& manifest);
  bool may_not_be_equal(const Manifest& manifest) const;
  bool valid(int64_t step);
  void retain(int64_t just_saved, const RunLock& lock);

  const Io& io_;
  std::string directory_;
  int64_t keep_, keep_every_;
  Holds holds_;
  std::function<void()> before_commit_;
  std::set<int64_t> valid_;  // steps whose every byte this process has re-read
  int64_t last_step_ = -1;   // of the last save or restore, and the digest of its tensors
  uint64_t last_tensors_ = 0;
  std::optional<int64_t> last_updates_;
  std::vector<std::string> warnings_;
  std::optional<CommitCommand> command_;
};

}  // namespace trireme
