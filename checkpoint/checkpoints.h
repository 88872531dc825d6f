// Checkpoints: the face of this room. A run's state is saved so that a crash at any moment leaves a valid newest checkpoint,
// and restored to the bit from the newest one whose digests hold.
//
// On disk: RUN/checkpoints/step-00001000/{manifest.json, shard-00000.h5}. A step is finished optimizer steps. Names that end in
// .tmp or .replaced are in the making or on the way out; they are swept when a run opens its directory. RUN/lock holds the run's
// lock, which rank 0 of several holds. Every rank writes its own file and reads its own slices; rank 0 commits. All ranks
// call restore, restore_from, begin, advance and end together.
//
// Beside the disk there may be a second tier, in the nodes' memory: see memory_tier.h. There one rank of each node commits. Both
// are looked through for the newest valid step.
//
// A save goes on while the steps do. begin() starts it: each rank writes and re-reads its file on a thread of its own. When no
// rank is busy() any more, advance() brings the parts together, and rank 0's thread commits; when that is done, advance() tells all
// ranks how it ended. Ranks agree on "busy" themselves, along with what else they agree on; the threads of a save talk to other
// ranks only to copy files between nodes' memories.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "checkpoint/config.h"
#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/retention.h"
#include "checkpoint/run_lock.h"
#include "parallel/comm.h"
#include "parallel/host_collectives.h"
#include "parallel/nodes.h"
#include "parallel/tensor_slice.h"

namespace trireme {

// What a save writes and a restore fills. Tensors are on Place::cpu; together the slices of a name cover its whole tensor: in a
// save each element once, over all ranks.
struct CheckpointState {
  std::vector<TensorSlice> slices;          // weights under their names, moments as "adam_m/NAME" and "adam_v/NAME"
  std::map<std::string, int64_t> counters;  // "tokens", "data_cursor", "seed", ...
  std::string config;                       // the resolved YAML, UTF-8
  bool finite = false;                      // a save of NaN or infinity is refused
};

enum class Tier { disk, memory };

struct SaveResult {
  int64_t step = 0;
  Tier tier = Tier::disk;
  int64_t bytes = 0;         // of all ranks; 0 when this very state was already there
  double seconds = 0;        // from begin to commit
  double write_seconds = 0;  // until all ranks' parts were on disk
  std::string digest;        // state_digest of what was saved
};

enum class Resume { automatic, never };

class Checkpoints {
 public:
  // Takes the run directory's lock, makes what is missing of the directory, and sweeps what a killed save left. ConfigError when
  // another process holds the lock, or when `resume` is never and the directory holds checkpoints.
  // `ranks` and `nodes` outlive this.
  Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume = Resume::automatic, Io io = {},
              const Comm& ranks = kAlone, const Nodes& nodes = kOneNode);
  ~Checkpoints() { abandon(); }
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // All ranks: whether this run has a checkpoint, valid or not.
  bool any() const { return !find_steps().empty(); }

  // Fills `state` in place from the newest valid checkpoint and returns its step; nullopt, `state` untouched, when the directory
  // holds none at all. Damaged checkpoints are passed over with a warning; CheckpointError when none is left (the tensors then hold
  // anything), or when the checkpoint's tensors are not those of `state` (all differences at once, nothing touched).
  std::optional<int64_t> restore(CheckpointState& state);

  // The same from exactly this checkpoint, or from the newest valid one of another run's directory. ConfigError when this run
  // already holds checkpoints that a later automatic resume would prefer.
  int64_t restore_from(const std::string& directory, CheckpointState& state);

  // Whether checkpoint.every asks for a save after `step` finished steps.
  bool due(int64_t step) const { return config_.every > 0 && step > 0 && step % config_.every == 0; }

  // Whether checkpoint.memory_every asks for one in memory.
  // Also for the first step after one that a node has lost: until then there is one copy of it.
  bool due_in_memory(int64_t step) const {
    return config_.memory_every > 0 && step > 0 && (step % config_.memory_every == 0 || copies_are_lost_);
  }

  // Begins to save `state` as of `step` finished steps. Its tensors stay as they are until the save has ended: they are a copy of
  // what is trained, or training waits. `ready`, called by the thread that writes, returns when they are there. No save is under
  // way.
  void begin(int64_t step, CheckpointState state, std::function<void()> ready = {}, Tier tier = Tier::disk);
  bool saving() const { return saving_.has_value(); }  // a save was begun and has not ended; on all ranks alike
  bool busy() const;                                   // this rank's thread is at work
  // When no rank is busy: the next part of the save; its result, when that was the last. Otherwise it waits until then.
  // CheckpointError, on all ranks, when the save failed: it could not be written or does not re-read, or a tensor has not changed
  // since an earlier step's save, so that the caller saves something else than what it trains. Previous checkpoints are intact, and
  // training may go on.
  std::optional<SaveResult> advance();
  SaveResult end();  // waits for the end of the save under way

  SaveResult save(int64_t step, CheckpointState state) {
    begin(step, std::move(state));
    return end();
  }

  // Called on rank 0, by the thread that commits, before each commit: what must be on disk with it.
  void before_commit(std::function<void()> call) { retention_.before_commit(std::move(call)); }

  // All ranks, after a restore: CheckpointError on all of them unless `slices`, each element once over all ranks, are the tensors
  // that were restored.
  void confirm(const std::vector<TensorSlice>& slices) const;

  // What is under way goes on to where its threads end, and is not heard of any more: of a rank that ends for another reason. What
  // begin() was given is its caller's again.
  void abandon();

  // Whether the last restore was from this run's directory on disk.
  bool restored_from_disk() const { return last_on_disk_ >= 0; }

  // No save is under way, checkpoint.command has done its last, and the lock is given back; what is in memory goes, unless it is
  // newer than what this process has restored from disk or saved there.
  void finish();

  // What went wrong without ending anything, since the last call; one line each.
  std::vector<std::string> take_warnings();

 private:
  struct Part {
    Manifest manifest;
    double seconds = 0;  // that it took to write
    std::string text;    // the manifest, for other ranks
  };
  enum class Phase { writing, merging, committing };
  struct Saving {
    Phase phase = Phase::writing;
    int64_t step;
    Tier tier;
    CheckpointState state;
    std::string id, staged;
    Clock::time_point start;
    std::future<Part> part;           // this rank's
    std::future<std::string> merged;  // rank 0's for other ranks that commit: the manifest
    std::future<void> commit;         // of ranks that commit
    SaveResult result;                // rank 0's
    std::exception_ptr failure;       // of this rank
  };

  Part write_part(const Saving& saving, const std::function<void()>& ready) const;
  void bring_together(Saving& saving);
  Manifest merge(Saving& saving, const Part& own, const std::vector<Outcome>& parts) const;
  void hand_out(Saving& saving);
  SaveResult conclude(Saving& saving);
  struct Found {
    std::string directory;  // of the steps
    int64_t step;
    std::optional<MemoryTier::Step> in_memory;
  };
  std::vector<Found> find_steps() const;
  int64_t restore_newest(const std::vector<Found>& steps, const std::string& searched, CheckpointState& state);
  int64_t restore_found(const Found& found, CheckpointState& state);
  int64_t restore_together(const std::string& directory, const std::function<Manifest()>& load, CheckpointState& state);

  CheckpointConfig config_;
  std::string directory_;  // RUN/checkpoints
  Io io_;
  const Comm& ranks_;
  std::optional<RunLock> run_lock_;  // rank 0's
  int64_t last_on_disk_ = -1;        // the step of the last save to disk or restore from there
  Retention retention_;              // rank 0 commits to it
  std::optional<MemoryTier> memory_;
  std::string run_id_;
  uint64_t restored_ = 0;  // the digest of the tensors of the last restore
  bool copies_are_lost_ = false;
  std::vector<std::string> warnings_;
  std::optional<Saving> saving_;  // the last member: its threads end before the others go
};

// The digest of a state: 16 hex digits over names, dtypes, shapes, every element and the counters. The same however the tensors are
// cut into slices.
std::string state_digest(const CheckpointState& state);

}  // namespace trireme
