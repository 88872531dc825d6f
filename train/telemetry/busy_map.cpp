#include "train/telemetry/busy_map.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

void join_columns(BusyMap::Column& into, const BusyMap::Column& later) {
  into.last_step = later.last_step;
  into.count += later.count;
  for (size_t row = 0; row < into.sums.size(); ++row) into.sums[row] += later.sums[row];
}

}  // namespace

void BusyMap::add(int64_t step, const std::vector<double>& ms) {
  if (ms.empty() || (!columns_.empty() && step < columns_.back().last_step)) return;
  const auto ranks = static_cast<int64_t>(ms.size());
  if (ranks != ranks_) {
    *this = {};
    ranks_ = ranks;
    per_row_ = (ranks + kMostRows - 1) / kMostRows;
  }
  last_ = ms;
  Column column{.first_step = step, .last_step = step, .count = 1, .sums = {}};
  column.sums.resize(static_cast<size_t>((ranks + per_row_ - 1) / per_row_));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double time = ms[static_cast<size_t>(rank)];
    double& row = column.sums[static_cast<size_t>(rank / per_row_)];
    if (std::isfinite(time)) row = std::max(row, time);
  }
  if (!columns_.empty() && columns_.back().first_step / width_ == step / width_) return join_columns(columns_.back(), column);
  columns_.push_back(std::move(column));
  while (static_cast<int64_t>(columns_.size()) > kMostColumns) halve();
}

void BusyMap::halve() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t i = 1; i < columns_.size(); ++i) {
    if (columns_[kept].first_step / width_ == columns_[i].first_step / width_)
      join_columns(columns_[kept], columns_[i]);
    else if (++kept != i)
      columns_[kept] = std::move(columns_[i]);
  }
  columns_.resize(kept + 1);
}

}  // namespace trireme
