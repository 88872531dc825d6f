// Checkpoints: the face of this room. A run's state is saved so that a crash at any moment leaves a valid newest checkpoint,
// and restored to the bit from the newest one whose digests hold.
//
// On disk: RUN/checkpoints/step-00001000/{manifest.json, shard-00000.h5}. A step is finished optimizer steps. Names that end in
// .tmp or .replaced are in the making or on the way out; they are swept when a run opens its directory. RUN/lock holds the run's
// lease, which rank 0 of several holds. Every rank writes its own shard file and reads its own shards; rank 0 commits. All ranks
// call restore, restore_from and save together. Synchronous: save() returns when the checkpoint is on disk.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/io.h"
#include "checkpoint/lease.h"
#include "checkpoint/manifest.h"
#include "parallel/comm.h"
#include "parallel/split.h"

namespace trireme {

// What a save writes and a restore fills. Tensors are on Place::cpu; together the shards of a name cover its whole tensor: in a
// save each element once, over all ranks.
struct CheckpointState {
  std::vector<NamedShard> shards;           // weights under their names, moments as "adam_m/NAME" and "adam_v/NAME"
  std::map<std::string, int64_t> counters;  // "tokens", "data_cursor", "seed", ...
  std::string config;                       // the resolved YAML, UTF-8
};

struct SaveResult {
  int64_t step = 0;
  int64_t bytes = 0;  // written; 0 when this very state was already there
  double seconds = 0;
  std::string digest;  // state_digest of what was saved
};

enum class Resume { automatic, never };

class Checkpoints {
 public:
  // Takes the run directory's lease, makes what is missing of the directory, and sweeps what a killed save left. ConfigError when
  // another process holds the lease, or when `resume` is never and the directory holds checkpoints.
  // `ranks` outlives this.
  Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume = Resume::automatic, Io io = {},
              const Comm& ranks = kAlone);

  // Fills `state` in place from the newest valid checkpoint and returns its step; nullopt, `state` untouched, when the directory
  // holds none at all. Damaged checkpoints are passed over with a warning; CheckpointError when none is left (the tensors then hold
  // anything), or when the checkpoint's tensors are not those of `state` (all differences at once, nothing touched).
  std::optional<int64_t> restore(CheckpointState& state);

  // The same from exactly this checkpoint, or from the newest valid one of another run's directory. ConfigError when this run
  // already holds checkpoints that a later automatic resume would prefer.
  int64_t restore_from(const std::string& directory, CheckpointState& state);

  // Whether checkpoint.every asks for a save after `step` finished steps.
  bool due(int64_t step) const { return every_ > 0 && step > 0 && step % every_ == 0; }

  // Commits `state` as of `step` finished steps, then deletes what checkpoint.keep no longer wants. CheckpointError when it could
  // not be written or does not re-read: previous checkpoints are intact, and training may go on. A tensor part that has not changed
  // since an earlier step's save is refused too: the caller then saves something else than what it trains.
  SaveResult save(int64_t step, const CheckpointState& state);

  // No save is under way afterwards, and the lease is given back.
  void finish() { lease_.reset(); }

  // What went wrong without ending anything, since the last call; one line each.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  bool already_saved(int64_t step, const std::string& digest);
  SaveResult lead_save(const CheckpointState& state, const Manifest& own, Manifest& manifest, bool& told);
  void follow_save(const CheckpointState& state, const Manifest& own);
  int64_t stage(const std::string& directory, const CheckpointState& state, const Manifest& own, Manifest& manifest, bool& told);
  std::string write_part(const std::string& directory, const CheckpointState& state, Manifest own);
  void retain(int64_t just_saved);
  bool valid(int64_t step);
  int64_t restore_newest(const std::string& directory, const std::vector<int64_t>& steps, CheckpointState& state);
  int64_t restore_together(const std::string& directory, const std::function<Manifest()>& load, CheckpointState& state);
  void discard(const std::string& staged);

  int64_t every_, keep_;
  std::string directory_;  // RUN/checkpoints
  Io io_;
  const Comm& ranks_;
  std::optional<Lease> lease_;  // rank 0's
  std::string run_id_;
  std::set<int64_t> valid_;  // steps whose every byte this process has re-read
  int64_t last_step_ = -1;   // of the last save or restore, and the digest of its tensors
  uint64_t last_tensors_ = 0;
  std::vector<std::string> warnings_;
};

// The digest of a state: 16 hex digits over names, dtypes, shapes, every element and the counters. The same however the tensors are
// cut into shards.
std::string state_digest(const CheckpointState& state);

}  // namespace trireme
