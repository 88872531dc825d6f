#include "model/shard_sum.h"

#include "kernels/ops/fill.h"
#include "parallel/collectives.h"

namespace trireme {

Tensor gather_rows(Pass& pass, Tensor x) {
  if (pass.tensor.row_parts() == 1) return x;
  const Tensor all = pass.temporaries.take(x.dtype(), {pass.size(), x.cols()});
  run(*pass.tensor.ranks, pass.stream, AllGather{.all = all.view({all.size()}), .part = x.view({x.size()})});
  return all;
}

ShardSum::ShardSum(Pass& pass, Tensor y) : pass_(pass), y_(y) {
  const TensorParallel& tensor = pass.tensor;
  if (tensor.exact)
    parts_ = pass.temporaries.take(Dtype::f32, {tensor.mine * pass.size(), y.cols()});
  else
    parts_ = tensor.row_parts() > 1 ? pass.temporary(y.cols()) : y;
}

Tensor ShardSum::part(int64_t shard) const { return parts_.slice(shard * pass_.size(), (shard + 1) * pass_.size()); }

void ShardSum::finish() {
  const TensorParallel& tensor = pass_.tensor;
  Stream& stream = pass_.stream;
  const bool alone = tensor.ranks->size() == 1;
  Tensor sum = part(0);
  if (tensor.exact) {
    if (alone && y_.dtype() != Dtype::f32) return run(stream, SumParts{.y = y_, .parts = parts_});
    if (alone || (y_.dtype() == Dtype::f32 && tensor.row_parts() == 1)) sum = y_;
    run(stream, SumParts{.y = sum, .parts = parts_});
  }
  if (alone) return;
  const auto flat = [](const Tensor& t) { return t.view({t.size()}); };
  if (tensor.row_parts() == 1) {
    run(*tensor.ranks, stream, AllReduce{.x = sum});
  } else {
    // This rank's own part of the sum, in place if the dtypes differ.
    const int64_t n = y_.size(), first = tensor.ranks->rank() * n;
    const Tensor part = sum.dtype() == y_.dtype() ? flat(y_) : flat(sum).slice(first, first + n);
    run(*tensor.ranks, stream, ReduceScatter{.part = part, .all = flat(sum)});
    sum = part;
  }
  if (sum.dtype() != y_.dtype()) run(stream, Cast{.y = y_, .x = sum});
}

}  // namespace trireme
