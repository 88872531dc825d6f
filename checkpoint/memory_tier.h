// MemoryTier: a run's checkpoints in the memory of its nodes, where they outlive the processes.
// With a copy on another node each, they also outlive a machine.
//
// On each node they are in /dev/shm/trireme-UID/TOKEN. RUN/memory holds the token and the directory
// names RUN. So it belongs to this user and to this run directory alone, not to a copy of it. One
// rank of the node holds its lock.
//
// A step's directory there looks as on disk, but holds only the files of the node's own ranks and
// of the previous node's ranks: each rank sends its file to a rank of the next node. A step can be
// restored as long as each of its files is on some node. Files that a node needs and lacks are
// copied from there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_location.h"
#include "checkpoint/retention.h"
#include "checkpoint/run_lock.h"
#include "parallel/comm.h"
#include "parallel/nodes.h"
#include "parallel/tensor_slice.h"

namespace trireme {

// Slices to read from a checkpoint, once its manifest is known.
using SlicesOf = std::function<std::vector<TensorSlice>(const Manifest&)>;

class MemoryTier {
 public:
  // Opens the tier of this run; creates one if it is `wanted` and missing. Sweeps what an
  // interrupted save left. ConfigError, on all ranks, if the system has no such memory or another
  // user owns the directory. The arguments must outlive this. All ranks call it.
  MemoryTier(const Io& io, const std::string& run_directory, bool wanted, const Nodes& nodes, const Comm& ranks);
  MemoryTier(const MemoryTier&) = delete;
  MemoryTier& operator=(const MemoryTier&) = delete;

  bool exists() const { return !directory_.empty(); }
  const std::string& directory() const { return directory_; }  // on this node
  // Retention on the rank that commits for its node and manages its directory; otherwise null.
  Retention* retention() { return retention_ ? &*retention_ : nullptr; }
  const RunLock* lock() const { return run_lock_ ? &*run_lock_ : nullptr; }  // likewise

  // A step that some node holds. Interrupted saves of one step that differ between two nodes count
  // as two.
  struct Step {
    int64_t step = 0;
    std::string save;     // its id
    std::string problem;  // why it cannot be restored; "": each of its files is on some node
    // Rank 0 only: the nodes that hold its manifest; for each file, the nodes that hold it.
    std::vector<int64_t> on;
    std::vector<std::vector<int64_t>> files;
  };
  // All steps in ascending order. All ranks call it.
  std::vector<Step> find() const;
  // Copies to this node the files that its ranks' slices are stored in. Throws
  // DamagedCheckpoint on all ranks if that is impossible. Returns true if any file was sent. All
  // ranks call it.
  bool bring(const Step& step, const SlicesOf& slices_of, const LayoutOf& layout) const;
  // Removes files of this step that do not match their digests, since another node may have intact
  // copies. Returns true if there were any. All ranks call it.
  bool drop_damaged(const Step& step) const;
  // Continues the run from `step`: discards newer steps, which could not be restored, also those of
  // absent nodes. All ranks call it.
  void go_on_from(int64_t step);

  // Sends the file that `part` names, in the directory `staged`, to a rank of the next node;
  // receives and re-reads those of the previous node. `part` is the text of a SaveSummary, or "" if the
  // rank has failed. All ranks call it, each on a thread.
  void exchange(const std::string& staged, const std::string& part) const;

  void remove();  // removes this node's directory
  std::vector<std::string> take_warnings();

 private:
  struct Move {
    int64_t file, from, to;  // index among a step's files; ranks
  };
  void take_lock();
  std::string list() const;
  // A step's manifest, and its text.
  struct Shared {
    std::string text;
    Manifest manifest;
  };
  Shared share_manifest(const Step& step) const;
  std::vector<Move> agree_on_moves(const Step& step, const std::vector<int64_t>& files) const;
  void carry_out(const std::vector<Move>& moves, const Shared& shared) const;
  void settle(const std::string& into, const std::vector<std::string>& received, const Shared& shared) const;
  bool leads() const { return nodes_.leader(nodes_.here()) == ranks_.rank(); }

  const Io& io_;
  const Nodes& nodes_;
  const Comm& ranks_;
  std::string run_directory_, directory_;
  std::optional<RunLock> run_lock_;
  std::optional<Retention> retention_;
  std::vector<std::string> warnings_;
};

// The newest step for which this machine's memory holds files of the run with the right sizes; -1:
// none.
int64_t newest_in_memory(const std::string& run_directory);

}  // namespace trireme
