// The part of the Optimizer that names its state, as checkpoints and exports know it.
#include <algorithm>
#include <utility>

#include "train/step/optimizer.h"

namespace trireme {

void Optimizer::for_each_piece(const std::function<void(const PieceRange&)>& then) const {
  for (const Segment& s : segments_) {
    const WeightSpec& spec = s.parameter->spec;
    const bool matrix = spec.shape.size() == 2, everywhere = spec.shared != Shared::no && mesh_.tp().rank() > 0;
    const int64_t cols = matrix ? spec.shape[1] : 1;
    int64_t begin = 0;  // first element of the piece, in the parameter
    for (const WeightPiece& piece : spec.all_pieces()) {
      const int64_t end = begin + piece.rows * cols, first = std::max(begin, s.first), last = std::min(end, s.first + s.count);
      PieceRange range{.segment = &s,
                       .name = spec.name + piece.name,
                       .shape = {piece.rows},
                       .offset = {piece.first},
                       .whole = {piece.all},
                       .first = first - begin,
                       .begin = s.at + first - s.first,
                       .end = s.at + last - s.first,
                       .copy = piece.copy || everywhere};
      if (matrix) {
        range.shape.push_back(cols);
        range.offset.push_back(spec.first_col);
        range.whole.push_back(spec.all_cols > 0 ? spec.all_cols : cols);
      }
      if (first < last) then(range);
      begin = end;
    }
  }
}

template <class Which>
void Optimizer::list_slices(std::vector<TensorSlice>& slices, const std::string& prefix, const Which& which, bool once) const {
  for_each_piece([&](const PieceRange& piece) {
    if (once && piece.copy) return;
    const Parameter& parameter = *piece.segment->parameter;
    const Tensor all = which(states_[parameter.unit], parameter);
    if (!all) return;
    const Tensor local = all.slice(piece.begin, piece.end);
    for (TensorSlice& slice : flat_slices(prefix + piece.name, piece.shape, piece.first, local)) {
      slice.global_shape = piece.whole;
      for (size_t d = 0; d < piece.offset.size(); ++d) slice.offset[d] += piece.offset[d];
      slices.push_back(std::move(slice));
    }
  });
}

// The same for what each copy has of its own.
template <class Which>
void Optimizer::list_own(std::vector<TensorSlice>& slices, const std::string& prefix, const Which& which, bool once) const {
  const size_t begin = slices.size();
  list_slices(slices, prefix, which, once);
  for (size_t i = begin; i < slices.size(); ++i) assign_to_copy(slices[i], mesh_.copy_group().rank(), mesh_.copies());
}

void Optimizer::list_bases(std::vector<TensorSlice>& slices) const {
  const int64_t rank = mesh_.tp().rank(), size = mesh_.tp().size();
  for (const CopySum::Basis& basis : sync_.copies().bases())
    slices.push_back({.name = kBasisPrefix + basis.parameter->spec.name,
                      .global_shape = {size * basis.q.rows(), basis.q.cols()},
                      .offset = {rank * basis.q.rows(), 0},
                      .local = basis.q});
}

std::vector<TensorSlice> Optimizer::masters(bool once) const {
  std::vector<TensorSlice> slices;
  list_slices(
      slices, "", [](const State& state, const Parameter&) { return state.master; }, once);
  return slices;
}

std::vector<TensorSlice> Optimizer::slices(bool once) const {
  std::vector<TensorSlice> slices;
  const auto list = [&](const std::string& prefix, auto which) { list_slices(slices, prefix, which, once); };
  if (parallel_.local()) {
    list("", [](const State& state, const Parameter&) { return state.outer; });
    list("outer_momentum/", [](const State& state, const Parameter&) { return state.momentum; });
  } else {
    slices = masters(once);
    for (size_t i = 0; i < kept_.size(); ++i)
      list(kept_[i] + "/", [i](const State& state, const Parameter&) { return state.kept[i]; });
  }
  list_bases(slices);
  return slices;
}

std::vector<TensorSlice> Optimizer::own_slices(bool once) const {
  std::vector<TensorSlice> slices;
  const auto list = [&](const std::string& prefix, auto which) { list_own(slices, prefix, which, once); };
  if (parallel_.local()) {
    list(kLocalPrefix, [](const State& state, const Parameter&) { return state.master; });
    for (size_t i = 0; i < kept_.size(); ++i)
      list(kLocalPrefix + kept_[i] + "/", [i](const State& state, const Parameter&) { return state.kept[i]; });
  }
  const CopySum& copies = sync_.copies();
  if (copies.compresses())
    list(kRestPrefix, [&](const State&, const Parameter& parameter) {
      return copies.is_coded(parameter) ? copies.rest(parameter.unit) : Tensor();
    });
  return slices;
}

}  // namespace trireme
