// Inspects checkpoints for tools and tests: lists, verifies, reads and compares them. It writes
// nothing and needs no lock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_location.h"
#include "checkpoint/rank_files.h"
#include "parallel/tensor_slice.h"

namespace trireme {

struct CheckpointInfo {
  std::string directory;
  int64_t step = 0;
  int64_t tensors = 0, bytes = 0;  // 0 if there is a problem
  std::string problem;             // why it is unusable; "": the manifest is valid and all files have the right sizes
};

// Checkpoints of a run's directory (or of its checkpoints/), oldest first. Does not read their
// data.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run);

// Verifies every byte of one checkpoint. Throws DamagedCheckpoint, a CheckpointError, that names
// file and tensor.
struct Verified {
  int64_t step, tensors, bytes;
  std::string digest;  // of the state
};
Verified verify_checkpoint(const std::string& directory);

// First tensor (by name) or counter in which two checkpoints differ, as "NAME: how"; nullopt if
// their states are equal. A run's directory stands for its newest checkpoint. Compares the
// manifests' digests: verify both to be sure of the bytes.
std::optional<std::string> diff_checkpoints(const std::string& a, const std::string& b);

// One checkpoint: its manifest, and its tensors one by one. A run's directory stands for its newest
// checkpoint without a problem in list_checkpoints. CheckpointError if there is none.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& run_or_checkpoint);
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }  // step, counters, config, tensors' names, dtypes, shapes
  // Reads a tensor into memory of its dtype and shape on Place::cpu, checked against its digests. The first call looks into
  // all files. CheckpointError if there is no such tensor. One thread at a time.
  void read(const std::string& name, Tensor into) const;
  // Reads parts of tensors; several ranks may do so at the same time, and if they say which rank reads, open only the files that
  // they need. CheckpointError if one differs from the tensor's shape or dtype.
  void read(const std::vector<TensorSlice>& slices, const ReadingRank& rank = {}) const;

 private:
  Io io_;
  std::string directory_;
  Manifest manifest_;
  // The files, once a tensor was read, and where each tensor is in them.
  mutable std::optional<RankFiles> files_;
  mutable TensorPieces pieces_;
};

// Directory of a run's checkpoints: `run`/checkpoints if it exists, else `run`.
std::string checkpoints_of(const std::string& run);

}  // namespace trireme
