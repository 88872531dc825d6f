// Retention: the checkpoints of a run in one directory. Commits new ones and deletes old ones. One
// thread at a time.
#pragma once

#include <functional>
#include <map>
#include <mutex>
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

std::string damaged_since(int64_t step, const std::string& problem);  // a warning

// All files of its checkpoints, or only some of each, as on one node of several.
enum class Holds { all, some };

class Retention {
 public:
  // Keeps the newest `keep` valid checkpoints, at least two, and each whose step is a multiple of
  // `keep_every`, unless that is 0. `io` must outlive this.
  Retention(const Io& io, std::string directory, const CheckpointConfig& config, Holds holds = Holds::all);

  // Commits the checkpoint that `manifest` describes, whose files in the directory `staged` are
  // complete, synced and re-read. Then deletes those that need not be kept. Returns the
  // checkpoint's bytes; 0 if this very state of this step existed already. `staged` is gone
  // afterwards, also after an error. CheckpointError if the disk refuses or the lock is lost. Also
  // if no tensor has changed since the save of an earlier step, unless the counter "updates" says
  // so. Error if the manifest is invalid.
  int64_t commit(const std::string& staged, const Manifest& manifest, const RunLock& lock);
  void discard(const std::string& staged);

  // Sets the restored state, from which the next save must differ.
  void follows(const Manifest& restored);
  // Runs the config's command for each step committed from now on. Appends its output to
  // RUN/checkpoint_command.log. Keeps a step until the command has run.
  // `anew`: forgets what the command has succeeded for.
  void after_commit(const CheckpointConfig& config, const std::string& run_directory, bool anew);
  // Runs it for a step that was restored from this directory, every byte checked, if it has not
  // succeeded for that.
  void run_command_for(int64_t step, const std::string& save);
  void wait_for_command(const std::function<bool()>& hurry) {
    if (command_) command_->finish(hurry);
  }
  // Registers a call before each commit, for what must be on disk together with it.
  void before_commit(std::function<void()> call) { before_commit_ = std::move(call); }
  // Registers a call after each commit, before anything is deleted, with the digest of the manifest's text. What it
  // throws is a warning.
  void committed(std::function<void(const Manifest&, uint64_t digest)> call) { committed_ = std::move(call); }
  // Names commits of earlier starts by step, and the digests of their manifests' texts. Unless a step is in doubt:
  // of the two newest that are kept, one counts as valid if its manifest has that digest and its files their sizes.
  // Older ones count unread; a thread that reads them beside the steps asks expects(). A step without a commit is read
  // to the last byte.
  void trust(std::map<int64_t, uint64_t> commits) { trusted_ = std::move(commits); }
  // True unless the manifest of this step should have another digest. From any thread.
  bool expects(int64_t step, uint64_t manifest) const;
  // Names a step that another thread found damaged: it is read again before it counts as valid.
  void doubt(int64_t step);
  void doubt(int64_t step, const std::string& problem);  // the same, with a warning

  std::vector<std::string> take_warnings();

 private:
  bool already_there(const Manifest& manifest);
  bool may_not_be_equal(const Manifest& manifest) const;
  enum class Unread { counts, does_not_count };
  bool valid(int64_t step, Unread unread);
  std::optional<uint64_t> known(int64_t step);
  bool of_another_run(int64_t step) const;
  void forget(int64_t step);
  void retain(int64_t just_saved, const RunLock& lock);

  const Io& io_;
  std::string directory_;
  int64_t keep_, keep_every_;
  Holds holds_;
  std::function<void()> before_commit_;
  std::function<void(const Manifest&, uint64_t digest)> committed_;
  std::string run_;           // id of the run whose checkpoints are kept and deleted
  mutable std::mutex mutex_;  // of the next
  std::set<int64_t> doubts_;  // steps found damaged
  std::vector<std::string> found_elsewhere_;
  std::map<int64_t, uint64_t> trusted_;
  std::set<int64_t> valid_;  // steps whose every byte this process has re-read, or that are as trusted_ says
  int64_t last_step_ = -1;   // of the last save or restore, and the digest of its tensors
  uint64_t last_tensors_ = 0;
  std::optional<int64_t> last_updates_;
  std::vector<std::string> warnings_;
  std::optional<CommitCommand> command_;
};

}  // namespace trireme
