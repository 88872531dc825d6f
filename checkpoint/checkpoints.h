// Checkpoints: the interface of this room. Saves a run's state so that a crash at any moment leaves
// a valid newest checkpoint. Restores it bit for bit from the newest checkpoint whose digests
// match.
//
// On disk: RUN/checkpoints/step-00001000/{manifest.json, shard-00000.h5}. A step is a number of
// finished optimizer steps. Names that end in .tmp or .replaced are incomplete or being deleted;
// opening a run's directory sweeps them. Rank 0 holds the lock RUN/lock for all ranks. Every rank
// writes its own file and reads its own slices; rank 0 commits. All ranks call restore,
// restore_from, begin, advance and end together.
//
// A second tier may keep checkpoints in the memory of the nodes: see memory_tier.h. There, one rank
// of each node commits. A restore looks for the newest valid step in both tiers.
//
// A save overlaps the steps that follow. begin() starts it: each rank writes and re-reads its file
// on a thread of its own. Once no rank is busy(), advance() merges the parts and rank 0's thread
// commits; after that, advance() returns the result on all ranks. The caller agrees on "busy"
// between ranks, along with whatever else it exchanges. The threads of a save communicate only to
// copy files between the memories of nodes.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "checkpoint/config.h"
#include "checkpoint/io.h"
#include "checkpoint/lineage.h"
#include "checkpoint/manifest.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/piece_location.h"
#include "checkpoint/retention.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/save_summary.h"
#include "parallel/comm.h"
#include "parallel/host_collectives.h"
#include "parallel/nodes.h"
#include "parallel/tensor_slice.h"

namespace trireme {

// The state that a save writes and a restore fills. Tensors are on Place::cpu. Together, the slices
// of a name over all ranks cover its tensor; in a save they hold each element once.
struct CheckpointState {
  std::vector<TensorSlice> slices;                 // weights under their names, moments as "adam_m/NAME" and "adam_v/NAME"
  std::map<std::string, int64_t> counters;         // "tokens", "data_cursor", "seed", ...
  std::string config;                              // the resolved YAML, UTF-8
  std::map<std::string, ChainedDigest> records{};  // see Manifest; of rank 0 when saving
  bool finite = false;                             // refuse to save NaN or infinity
  // Called by a restore with the manifest before any tensor is read; may throw to refuse it, and change which
  // slices of the same tensors are read.
  std::function<void(const Manifest&)> accept{};
  // True for a tensor of the checkpoint that no rank needs to read. Without it, all are read.
  std::function<bool(const std::string& name)> may_be_left{};
  // Called by a restore with the saved config and its number of ranks: what each of them saved. Without it, a restore by
  // other ranks looks into all files.
  LayoutOf layout{};
};

enum class Tier { disk, memory };

struct SaveResult {
  int64_t step = 0;
  Tier tier = Tier::disk;
  int64_t bytes = 0;         // of all ranks; 0 if this very state was on disk already
  double seconds = 0;        // from begin to commit
  double write_seconds = 0;  // until all ranks had their parts on disk
  std::string digest;        // state_digest of the saved state
};

enum class Resume { automatic, never };

class Checkpoints {
 public:
  // Takes the run directory's lock, creates missing directories and sweeps what a killed save left.
  // ConfigError if another process holds the lock for longer than kLockPatience, or if `resume` is
  // never and the directory holds checkpoints.
  // `ranks` and `nodes` must outlive this.
  Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume = Resume::automatic, Io io = {},
              const Comm& ranks = kAlone, const Nodes& nodes = kOneNode);
  ~Checkpoints() { abandon(); }
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // True if this run has a checkpoint, valid or not. All ranks call it.
  bool any() const { return !find_steps().empty(); }

  // Fills `state` in place from the newest valid checkpoint and returns its step. Returns nullopt,
  // `state` untouched, if there is none, or if nodes that were lost held files of each.
  // CheckpointError in these cases if some were committed to disk: what is missing is not new.
  // Skips damaged checkpoints and those of other runs with a warning.
  // CheckpointError if none is left (the tensors then hold anything), or if the checkpoint's
  // tensors differ from those of `state` (all differences at once, nothing touched).
  std::optional<int64_t> restore(CheckpointState& state);

  // Restores exactly this checkpoint, or the newest valid one of another run's directory.
  // ConfigError if this run already holds checkpoints that a later automatic resume would prefer.
  int64_t restore_from(const std::string& directory, CheckpointState& state);

  // True if checkpoint.every asks for a save after `step` finished steps.
  bool due(int64_t step) const { return config_.every > 0 && step > 0 && step % config_.every == 0; }

  // True if checkpoint.memory_every asks for a save in memory.
  // Also for the first step after a node lost its copy: until then a single copy exists.
  bool due_in_memory(int64_t step) const {
    return config_.memory_every > 0 && step > 0 && (step % config_.memory_every == 0 || copies_are_lost_);
  }

  // Begins to save `state` as of `step` finished steps. Its tensors must not change until the save
  // has ended: they are a copy, or training waits. The writing thread calls `ready`, which returns
  // once the tensors are complete. Call it only when no save is in progress.
  void begin(int64_t step, CheckpointState state, std::function<void()> ready = {}, Tier tier = Tier::disk);
  bool saving() const { return saving_.has_value(); }  // a save is in progress; the same on all ranks
  bool busy() const;                                   // this rank's thread is working
  // Call it when no rank is busy: performs the next part of the save, and returns the result after
  // the last. Otherwise it waits until then. CheckpointError, on all ranks, if the save failed: it
  // could not be written, did not re-read, or a tensor is unchanged since the save of an earlier
  // step, so the caller does not save what it trains. Previous checkpoints remain intact, and
  // training may continue.
  std::optional<SaveResult> advance();
  SaveResult end();  // waits for the end of the save in progress

  SaveResult save(int64_t step, CheckpointState state) {
    begin(step, std::move(state));
    return end();
  }

  // Registers a call that the committing thread of rank 0 makes before each commit, for what must
  // be on disk together with it.
  void before_commit(std::function<void()> call) { retention_.before_commit(std::move(call)); }

  // Checks after a restore that `slices`, each element once over all ranks, are the restored
  // tensors, as far as these have their names and shapes. CheckpointError on all ranks otherwise. All
  // ranks call it.
  void confirm(const std::vector<TensorSlice>& slices) const;

  // Lets threads in progress run to their end and ignores their result, for a rank that ends for
  // another reason. Afterwards the caller owns the state given to begin() again.
  void abandon();

  // This run's token, on rank 0: see run_id.h. Made and written if the run has none yet.
  const std::string& run_id();
  // The run that the last restore read from, and its records.
  const std::string& restored_run() const { return restored_run_; }
  const std::map<std::string, ChainedDigest>& restored_records() const { return restored_records_; }
  // Notes a commit that only other files of the run know, so that a later start knows it, too.
  void note_lost(int64_t step);
  // Names a step that was found damaged: retention keeps another. From any thread of any rank; rank 0 learns it with the
  // next save, as a warning.
  void doubt(int64_t step, const std::string& problem);

  // False on rank 0 if the lineage knows another manifest of this step than the one with this digest of its text. From any
  // thread; true on other ranks.
  bool expects(int64_t step, uint64_t manifest) const { return retention_.expects(step, manifest); }

  // True if the last restore read this run's directory on disk.
  bool restored_from_disk() const { return last_on_disk_ >= 0; }

  // Call it when no save is in progress: waits for checkpoint.command, only for some seconds once
  // `hurry` returns true, and releases the lock.
  // Removes what is in memory, unless it is newer than what this process restored from disk or
  // saved there.
  void finish(const std::function<bool()>& hurry = [] { return false; });

  // Returns the problems since the last call that ended nothing; one line each.
  std::vector<std::string> take_warnings();

 private:
  enum class Phase { writing, merging, committing };
  struct Saving {
    Phase phase = Phase::writing;
    int64_t step;
    Tier tier;
    CheckpointState state;
    std::string id, staged;
    Clock::time_point start;
    std::future<std::string> part;    // of this rank: its SaveSummary
    std::future<std::string> merged;  // on rank 0: the manifest, for other ranks that commit
    std::future<void> commit;         // on ranks that commit
    SaveResult result;                // on rank 0
    std::exception_ptr failure;       // of this rank
  };

  std::string write_part(const Saving& saving, const std::function<void()>& ready) const;
  void bring_together(Saving& saving);
  Manifest manifest_of(Saving& saving, const Outcome& all);
  std::vector<SaveSummary::Damage> doubts_to_send() const;
  void drop_sent_doubts();
  void hand_out(Saving& saving);
  SaveResult conclude(Saving& saving);
  struct Found {
    std::string directory;  // holds the directories of steps
    int64_t step;
    std::optional<MemoryTier::Step> in_memory;
  };
  std::vector<Found> find_steps() const;
  void adopt_id(const std::string& id);
  void open_records(Resume resume);
  std::string foreign(const Found& found) const;
  void require_not_missing();
  int64_t restore_newest(const std::vector<Found>& steps, const std::string& searched, CheckpointState& state);
  int64_t restore_found(const Found& found, CheckpointState& state);
  int64_t restore_together(const std::string& directory, const std::function<Manifest()>& load, CheckpointState& state);
  Manifest shared_manifest(const std::string& directory) const;

  CheckpointConfig config_;
  std::string directory_;  // RUN/checkpoints
  Io io_;
  const Comm& ranks_;
  std::optional<RunLock> run_lock_;  // on rank 0
  int64_t last_on_disk_ = -1;        // the last step saved to disk or restored from there
  Retention retention_;              // rank 0 commits to it
  std::optional<MemoryTier> memory_;
  std::string run_directory_, run_id_;  // run_id_ "": not known yet
  bool unnamed_ = false;                // the id could not be written yet, on rank 0
  std::optional<Lineage> lineage_;      // on rank 0
  std::string restored_run_;
  std::map<std::string, ChainedDigest> restored_records_;
  std::vector<TensorEntry> restored_;  // tensors of the last restore
  bool copies_are_lost_ = false;
  mutable std::mutex mutex_;                 // of the next
  std::vector<SaveSummary::Damage> doubts_;  // for rank 0
  mutable size_t sent_doubts_ = 0;           // the first of them, with the save in progress
  std::vector<std::string> warnings_;
  std::optional<Saving> saving_;  // last member: destroyed first, which joins its threads
};

// Digest of a state: 16 hex digits over names, dtypes, shapes, every element and the counters. It
// does not depend on how tensors are cut into slices.
std::string state_digest(const CheckpointState& state);

}  // namespace trireme
