// Piece location: which files of a checkpoint hold what a rank reads, without opening them all.
//
// What a rank saves is a function of the config, the number of ranks and the rank, so a reader that knows
// the config can compute it. The manifest keeps a digest of what was saved where. If the computed one
// is the same, it is trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "parallel/comm.h"
#include "parallel/tensor_slice.h"

namespace trireme {

class RankFiles;

// The slices that a rank of a run saves; only their names, offsets and shapes count. Called by several threads at a time.
using Layout = std::function<std::vector<TensorSlice>(int64_t rank)>;
// The layout of a run of this config on so many ranks; may throw ConfigError.
using LayoutOf = std::function<Layout(const std::string& config, int64_t ranks)>;

// The share of a rank in Manifest::layout, which is their sum.
uint64_t layout_share(int64_t rank, const std::vector<TensorSlice>& slices);

// The rank that reads, of how many, and, if known, what those that saved have saved.
struct ReadingRank {
  int64_t rank = 0, ranks = 0;  // 0: unknown
  Layout layout{};
};

ReadingRank reading_rank(const Comm& ranks, const Manifest& manifest, const LayoutOf& layout);

// How much of each slice the pieces of some files hold. The slices must outlive it.
class Coverage {
 public:
  using Boxes = std::map<std::string_view, std::vector<TensorRegion>>;  // by tensor

  explicit Coverage(const std::vector<TensorSlice>& slices);
  void add(const Manifest& manifest, const FileEntry& file);
  Boxes missing() const;  // boxes of slices whose elements are not held once each

 private:
  struct Held {
    TensorRegion box;
    Cover wanted{}, found{};
  };
  std::map<std::string_view, std::vector<Held>> slices_;
};

// Indices of files that hold all elements of `slices`, in ascending order: if as many ranks saved, this rank's own file and
// those of neighbours, if they hold all; else those that the layout names, or in version 1 the manifest.
// nullopt if none of these says.
std::optional<std::vector<int64_t>> located_files(RankFiles& files, const std::vector<TensorSlice>& slices,
                                                  const ReadingRank& reader);
// The same; all files if none says.
std::vector<int64_t> files_with(RankFiles& files, const std::vector<TensorSlice>& slices, const ReadingRank& reader);

}  // namespace trireme
