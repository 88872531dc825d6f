#include "model/shard_sum.h"

#include <utility>

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {
namespace {

Tensor flat(const Tensor& t) { return t.view({t.size()}); }

// Returns the lane for exchanges, ordered after the products so far.
Stream& lane_of(const Pass& pass) {
  if (!runs_beside(pass)) return pass.stream;
  pass.tensor.beside->wait(pass.stream.record());
  return *pass.tensor.beside;
}

// Every rank's rows if products are divided; otherwise all in one.
std::vector<RowRange> ranges_of(const Pass& pass) {
  const TensorParallel& tensor = pass.tensor;
  const bool divided = runs_beside(pass) && !tensor.exact && !pass.fp8;
  const int64_t parts = divided ? tensor.row_parts() : 1, rows = pass.size() / parts;
  std::vector<RowRange> ranges;
  for (int64_t r = 0; r < parts; ++r) ranges.push_back({.begin = r * rows, .end = (r + 1) * rows});
  return ranges;
}

}  // namespace

Tensor gather_rows(Pass& pass, Tensor x) {
  if (pass.tensor.row_parts() == 1) return x;
  const Tensor all = pass.temporaries.take(x.dtype(), {pass.size(), x.cols()});
  run(*pass.tensor.ranks, pass.stream, AllGather{.all = flat(all), .part = flat(x)});
  return all;
}

GatheredRows::GatheredRows(Pass& pass, Tensor x)
    : pass_(pass), own_(x), all_(x), ranges_(ranges_of(pass)), arrived_(ranges_.size()) {
  if (pass.tensor.row_parts() == 1) return;
  all_ = pass.temporaries.take(x.dtype(), {pass.size(), x.cols()});
  const Comm& ranks = *pass.tensor.ranks;
  if (ranges_.size() > 1) run(pass.stream, Cast{.y = ranges_[static_cast<size_t>(ranks.rank())].of(all_), .x = x});
  Stream& lane = lane_of(pass);
  for (size_t r = 0; r < ranges_.size(); ++r) {
    if (ranges_.size() == 1)
      run(ranks, lane, AllGather{.all = flat(all_), .part = flat(x)});
    else
      run(ranks, lane, Broadcast{.x = ranges_[r].of(all_), .root = static_cast<int64_t>(r)});
    if (runs_beside(pass)) arrived_[r] = lane.record();
  }
}

size_t GatheredRows::range_number(First first, size_t i) const {
  if (first == First::lowest || ranges_.size() == 1) return i;
  const auto own = static_cast<size_t>(pass_.tensor.ranks->rank());
  return i == 0 ? own : i <= own ? i - 1 : i;
}

// Own rows are there from the start. Their copy is being sent.
Tensor GatheredRows::arrived_rows(size_t range) {
  if (ranges_.size() > 1 && std::cmp_equal(range, pass_.tensor.ranks->rank())) return own_;
  pass_.stream.wait(arrived_[range]);
  return ranges_[range].of(all_);
}

Tensor GatheredRows::all() {
  pass_.stream.wait(arrived_.back());  // the lane keeps its order
  return all_;
}

ShardSum::ShardSum(Pass& pass, Tensor y) : pass_(pass), y_(y), ranges_(ranges_of(pass)) {
  const TensorParallel& tensor = pass.tensor;
  if (tensor.exact)
    parts_ = pass.temporaries.take(Dtype::f32, {tensor.mine * pass.size(), y.cols()});
  else
    parts_ = tensor.row_parts() > 1 ? pass.temporary(y.cols()) : y;
  summed_ = y;
}

Tensor ShardSum::part(int64_t shard) const { return parts_.slice(shard * pass_.size(), (shard + 1) * pass_.size()); }

void ShardSum::written(int64_t shard, const RowRange& rows) {
  const TensorParallel& tensor = pass_.tensor;
  if (shard + 1 < tensor.mine) return;
  const bool alone = tensor.ranks->size() == 1;
  Tensor sum = part(0);
  if (tensor.exact) {
    if (alone || (y_.dtype() == Dtype::f32 && tensor.row_parts() == 1)) sum = y_;
    run(pass_.stream, SumParts{.y = sum, .parts = parts_});
  }
  if (!alone) send(rows, sum);
}

// Sums these rows of `sum` over the ranks.
void ShardSum::send(const RowRange& rows, const Tensor& sum) {
  const TensorParallel& tensor = pass_.tensor;
  Stream& lane = lane_of(pass_);
  if (tensor.row_parts() == 1) {
    run(*tensor.ranks, lane, AllReduce{.x = sum});
    summed_ = sum;
    return;
  }
  // This rank's own rows of the sum, in place if the dtypes differ.
  const int64_t own = pass_.own(), first = tensor.ranks->rank() * own;
  summed_ = sum.dtype() == y_.dtype() ? y_ : sum.slice(first, first + own);
  const bool whole = rows.end - rows.begin == pass_.size();
  if (whole) return run(*tensor.ranks, lane, ReduceScatter{.part = flat(summed_), .all = flat(sum)});
  const bool mine = rows.begin == first;
  run(*tensor.ranks, lane, Reduce{.sum = mine ? flat(summed_) : Tensor{}, .x = flat(rows.of(sum)), .root = rows.begin / own});
}

void ShardSum::finish() {
  if (runs_beside(pass_)) pass_.stream.wait(pass_.tensor.beside->record());
  if (summed_.dtype() != y_.dtype()) run(pass_.stream, Cast{.y = y_, .x = summed_});
}

}  // namespace trireme
