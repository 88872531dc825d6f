#include "train/step/copy_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

const std::string kMomentumPrefix = "outer_momentum/", kMomentPrefix = "adam_";

void clear(const Tensor& x) { std::memset(x.data(), 0, static_cast<size_t>(x.bytes())); }

// Makes the slice of copy `from` of `copies` that of copy `to` of `saved`.
void move_to_copy(TensorSlice& slice, int64_t from, int64_t copies, int64_t to, int64_t saved) {
  slice.global_shape[0] /= copies;
  slice.offset[0] -= from * slice.global_shape[0];
  assign_to_copy(slice, to, saved);
}

}  // namespace

bool may_be_left(const std::string& name) {
  return is_of_each_copy(name) || name.starts_with(kBasisPrefix) || name.starts_with(kMomentumPrefix) ||
         name.starts_with(kMomentPrefix);
}

// Slices of the rests that this copy takes over from `saved` copies: every copies_-th is added up.
std::vector<TensorSlice> CopyReader::rests(TensorSlice slice, int64_t saved) {
  const Tensor to = slice.local;
  clear(to);
  std::vector<TensorSlice> reads;
  for (int64_t of = copy_; of < saved; of += copies_) {
    reads.push_back(slice);
    move_to_copy(reads.back(), copy_, copies_, of, saved);
    if (of == copy_) continue;
    More& more = more_.emplace_back(More{.to = to, .from = std::vector<std::byte>(static_cast<size_t>(to.bytes()))});
    const Tensor there(more.from.data(), to.dtype(), Place::cpu, {to.size()});
    reads.back().local = to.dims() == 2 ? there.view({to.dim(0), to.dim(1)}) : there;
  }
  return reads;
}

std::vector<TensorSlice> CopyReader::adapted(const std::vector<TensorSlice>& slices, const ShapeOf& shape_of) {
  more_.clear(), rests_of_ = locals_of_ = 0, new_bases_ = false;
  std::vector<TensorSlice> reads;
  for (const TensorSlice& slice : slices) {
    TensorSlice read = slice;
    const bool local = slice.name.starts_with(kLocalPrefix), rest = slice.name.starts_with(kRestPrefix);
    const std::vector<int64_t> shape = shape_of(slice.name);
    const int64_t rows = slice.global_shape[0] / (local || rest ? copies_ : 1);  // of one copy
    const auto saved_in = [&](const std::vector<int64_t>& all) { return all.empty() || rows == 0 ? 0 : all[0] / rows; };
    if (rest) {
      rests_of_ = std::max(rests_of_, saved_in(shape));
      for (TensorSlice& part : rests(slice, saved_in(shape))) reads.push_back(std::move(part));
      continue;
    }
    if (local && !shape.empty()) {
      locals_of_ = saved_in(shape);
      move_to_copy(read, copy_, copies_, copy_ % std::max<int64_t>(saved_in(shape), 1), saved_in(shape));
    } else if (local) {
      move_to_copy(read, copy_, copies_, 0, 1);
      read.name = slice.name.substr(kLocalPrefix.size());
    } else if (const std::vector<int64_t> of_copies = shape_of(kLocalPrefix + slice.name);
               slice.name.starts_with(kMomentPrefix) && shape.empty() && !of_copies.empty()) {
      assign_to_copy(read, 0, saved_in(of_copies));
      read.name = kLocalPrefix + slice.name;
    } else if (slice.name.starts_with(kMomentumPrefix) && shape.empty()) {
      clear(slice.local);
      continue;
    } else if (slice.name.starts_with(kBasisPrefix) && shape != slice.global_shape) {
      new_bases_ = true;
      continue;
    }
    reads.push_back(std::move(read));
  }
  return reads;
}

std::vector<std::string> CopyReader::changes() const {
  std::vector<std::string> lines;
  const auto from_to = [this](int64_t saved) {
    return std::to_string(saved) + (saved == 1 ? " copy" : " copies") + " of the state continued on " + std::to_string(copies_);
  };
  if (rests_of_ > 0 && rests_of_ != copies_) lines.push_back(from_to(rests_of_) + ": what they have left out of sums is added up");
  if (locals_of_ > 0 && locals_of_ != copies_)
    lines.push_back(from_to(locals_of_) + ": each takes weights and moments of one of them");
  if (new_bases_) lines.emplace_back("the bases of powersgd begin anew, since weights are divided in another way");
  return lines;
}

void CopyReader::add_up() const {
  for (const More& more : more_) {
    auto* const to = more.to.as<Bf16>();
    const auto* const from = reinterpret_cast<const Bf16*>(more.from.data());
    for (int64_t i = 0; i < more.to.size(); ++i) to[i] = Bf16(static_cast<float>(to[i]) + static_cast<float>(from[i]));
  }
}

}  // namespace trireme
