// State that each copy of the optimizer's state has of its own. A checkpoint holds it as tensors with so
// many times the rows: first those of copy 0, then those of copy 1, and so on.
//
//   local/NAME, local/adam_m/NAME   with parallel.local_steps, between two outer steps: weights and moments
//   error_feedback/NAME             with parallel.compress: what the copy has left out of sums. The sum over
//                                   all copies matters, so fewer copies each take those of several
//
// Besides, powersgd/NAME holds the bases of the tp ranks' parts of a weight, the same in all copies. With
// other parts they begin anew.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "parallel/tensor_slice.h"

namespace trireme {

inline const std::string kLocalPrefix = "local/", kRestPrefix = "error_feedback/", kBasisPrefix = "powersgd/";

inline bool is_of_each_copy(const std::string& name) { return name.starts_with(kLocalPrefix) || name.starts_with(kRestPrefix); }

// Makes the slice of a tensor that of a copy in a tensor of `copies`.
inline void assign_to_copy(TensorSlice& slice, int64_t copy, int64_t copies) {
  slice.offset[0] += copy * slice.global_shape[0];
  slice.global_shape[0] *= copies;
}

// True for tensors that another config of the same model may not need.
bool may_be_left(const std::string& name);

// Reads a checkpoint of any number of copies, with or without state of their own. Weights and moments of
// copy c are those of copy c modulo the saved ones; with none, those that all copies shared.
class CopyReader {
 public:
  // Shape of a tensor in the checkpoint; empty: it has none of that name.
  using ShapeOf = std::function<std::vector<int64_t>(const std::string& name)>;

  CopyReader(int64_t copy, int64_t copies) : copy_(copy), copies_(copies) {}

  // The slices to read instead of `slices`, which are of this rank and of its copy. What the checkpoint
  // lacks is cleared, and a basis of another shape stays as it is. What other copies have left out takes
  // memory of its own until the next call.
  std::vector<TensorSlice> adapted(const std::vector<TensorSlice>& slices, const ShapeOf& shape_of);
  // Names what of the checkpoint is not read as it was saved, a line each.
  std::vector<std::string> changes() const;
  // Adds what was read of further copies to what this one takes over from them.
  void add_up() const;

 private:
  struct More {
    Tensor to;
    std::vector<std::byte> from;
  };
  std::vector<TensorSlice> rests(TensorSlice slice, int64_t saved);

  int64_t copy_, copies_;
  std::vector<More> more_;
  int64_t rests_of_ = 0, locals_of_ = 0;  // copies in the checkpoint; 0: it has no such state, or is not asked
  bool new_bases_ = false;
};

}  // namespace trireme
