// MemoryTier: a run's checkpoints in the memory of its nodes, which outlive the processes; with a copy on another node each, so
// that they outlive a machine, too.
//
// On each node they lie in /dev/shm/trireme-UID/TOKEN. RUN/memory holds the token and the directory names RUN, so that it belongs
// to this run directory alone, to no copy of it, and to this user; one rank of the node holds its lock. A step's directory there
// is as on disk, but holds of the step's files only those of the node's own ranks, and of the ranks of the node before: each rank
// hands its file to one of the next node's. A step can be restored as long as each of its files is on some node; what a node needs
// and has lost, or never had, is brought from there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/run_lock.h"
#include "parallel/comm.h"
#include "parallel/nodes.h"
#include "parallel/tensor_slice.h"

namespace trireme {

class MemoryTier {
 public:
  // All ranks call it. The tier that this run has; if it is `wanted`, a new one where there is none. What a save that was cut off
  // left is swept. ConfigError, on all ranks, when a system has no such memory or another user is in the way. What it is given
  // outlives it.
  MemoryTier(const Io& io, const std::string& run_directory, bool wanted, const Nodes& nodes, const Comm& ranks);
  MemoryTier(const MemoryTier&) = delete;
  MemoryTier& operator=(const MemoryTier&) = delete;

  bool exists() const { return !directory_.empty(); }
  const std::string& directory() const { return directory_; }  // of this node
  // Of the rank that commits on its node, and sees to what is there.
  Retention* retention() { return retention_ ? &*retention_ : nullptr; }
  const RunLock* lock() const { return run_lock_ ? &*run_lock_ : nullptr; }  // likewise

  // A step that some node has. Saves of one step that were cut off differently on two nodes are two of them.
  struct Step {
    int64_t step = 0;
    std::string save;     // its id
    std::string problem;  // why it cannot be restored; "": each file of it is on some node
    // Rank 0's: the nodes that have its manifest; of each file those that have it.
    std::vector<int64_t> on;
    std::vector<std::vector<int64_t>> files;
  };
  // All ranks; rising.
  std::vector<Step> find() const;
  // All ranks: afterwards step.step's directory on this node holds the files that `slices` of its ranks are in. DamagedCheckpoint,
  // on all of them, when that cannot be. Returns whether anything had to be sent.
  bool bring(const Step& step, const std::vector<TensorSlice>& slices) const;
  // All ranks: files of this step that do not match their digests are removed, where another node may have them whole. Returns
  // whether there were any.
  bool drop_damaged(const Step& step) const;
  // All ranks: the run goes on from `step`. Newer ones, which could not be restored, are forgotten, also those of nodes that are
  // not here now.
  void go_on_from(int64_t step);

  // All ranks, each on a thread: the file that `part` names, which is in the directory `staged`, goes to a rank of the next node;
  // those of the node before arrive there and are re-read. `part` is a manifest's text, or "" of a rank that has none to give.
  void exchange(const std::string& staged, const std::string& part) const;

  void remove();  // what is on this node
  std::vector<std::string> take_warnings();

 private:
  struct Move {
    int64_t file, from, to;  // of a step's files; ranks
  };
  void take_lock();
  std::string list() const;
  Manifest share_manifest(const Step& step) const;
  std::vector<Move> agree_on_moves(const Step& step, const Manifest& manifest, const std::vector<TensorSlice>& slices) const;
  void carry_out(const std::vector<Move>& moves, const Manifest& manifest) const;
  void settle(const std::string& into, const std::vector<std::string>& received, const Manifest& manifest) const;
  bool leads() const { return nodes_.leader(nodes_.here()) == ranks_.rank(); }

  const Io& io_;
  const Nodes& nodes_;
  const Comm& ranks_;
  std::string run_directory_, directory_;
  std::optional<RunLock> run_lock_;
  std::optional<Retention> retention_;
  std::vector<std::string> warnings_;
};

// The newest step of which this machine's memory holds files for the run, of the right sizes; -1: none.
int64_t newest_in_memory(const std::string& run_directory);

}  // namespace trireme
