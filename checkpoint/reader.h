// For tools and tests: what checkpoints are there, whether they are whole, what is in one, and where two differ. Nothing here
// writes or needs the lock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "parallel/tensor_slice.h"

namespace trireme {

struct CheckpointInfo {
  std::string directory;
  int64_t step = 0;
  int64_t tensors = 0, bytes = 0;  // 0 when there is a problem
  std::string problem;             // why it cannot be used; "": its manifest is valid and its files have the right sizes
};

// The checkpoints of a run's directory (or of its checkpoints/), oldest first; their data is not read.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run);

// Reads every byte of one checkpoint against its digests. DamagedCheckpoint, a CheckpointError, that names file and tensor.
struct Verified {
  int64_t step, tensors, bytes;
  std::string digest;  // the state's
};
Verified verify_checkpoint(const std::string& directory);

// The first tensor (by name) or counter in which two checkpoints differ, as "NAME: how"; nullopt when their states are equal. Of a
// run's directory, its newest checkpoint. Compares the manifests' digests: verify both to be sure of the bytes.
std::optional<std::string> diff_checkpoints(const std::string& a, const std::string& b);

// One checkpoint: its manifest, and tensors one by one. Given a run's directory, its newest checkpoint that list_checkpoints finds
// no problem with. CheckpointError when there is none.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& run_or_checkpoint);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }  // step, counters, config, and each tensor's name, dtype and shape
  // Into memory of the tensor's dtype and shape on Place::cpu; checked against its digests. CheckpointError when there is no such
  // tensor.
  void read(const std::string& name, Tensor into) const;
  // Parts of tensors, which several ranks may read side by side. CheckpointError when one is not of the tensor's shape or dtype.
  void read(const std::vector<TensorSlice>& slices) const;

 private:
  Io io_;
  std::string directory_;
  Manifest manifest_;
};

// Where the checkpoints of a run lie: `run`/checkpoints if that exists, else `run`.
std::string checkpoints_of(const std::string& run);

}  // namespace trireme
