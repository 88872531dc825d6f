// SaveSummary: what one or several ranks have saved, for the manifest. It has a line for each file and
// each tensor, and no pieces. So ranks can merge theirs in pairs, and no rank ever holds more than the
// manifest will.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "parallel/comm.h"
#include "parallel/host_collectives.h"

namespace trireme {

struct SaveSummary {
  struct Tensor {
    TensorEntry entry;  // digest: the share of the ranks
    Cover cover;        // by their pieces
  };
  // A checkpoint that was found damaged.
  struct Damage {
    int64_t step;
    std::string problem;  // a line
  };
  double seconds = 0;  // of the slowest rank
  uint64_t layout = 0;
  std::vector<FileEntry> files;  // without pieces, by rank
  std::vector<Tensor> tensors;   // sorted by name
  std::vector<Damage> damages;   // found since the save before

  SaveSummary() = default;
  // Summarizes one rank's part of a manifest.
  explicit SaveSummary(const Manifest& part);
  // Adds what higher ranks have saved. Error if a tensor has another shape or dtype there.
  void add(const SaveSummary& others);
  // Puts files, tensors and layout into a manifest. DamagedCheckpoint if pieces overlap or leave a gap.
  void fill(Manifest& manifest) const;
  std::vector<TensorEntry> entries() const;
};

// A text, a line for each, and back. Only for ranks of one program.
std::string text_of(const SaveSummary& summary);
SaveSummary summary_of(const std::string& text);

// The summary of all ranks, on rank 0. The problems of ranks that failed, a line each. All ranks call it.
Outcome merged(const Comm& ranks, const Outcome& mine);

}  // namespace trireme
