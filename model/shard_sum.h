// Exchanges between the shards of a tensor-parallel model. They gather rows of the stream before a
// product whose weight is split by rows, and sum after one whose weight is split by columns.
//
// With TensorParallel::beside they run beside these products. If rows are split, each product is one for
// every rank's rows: a gather's rows are used as they arrive, and a sum's are sent as they are computed
// (Wang et al., "Overlap communication with dependent computation via decomposition in large deep
// learning models", 2023). Not so are 8-bit products, which have one scale, nor with exact sums, whose
// products have the same rows on every mesh.
#pragma once

#include <vector>

#include "model/part.h"

namespace trireme {

// True if exchanges run beside products.
inline bool runs_beside(const Pass& pass) { return pass.tensor.beside != nullptr && pass.tensor.ranks->size() > 1; }

// All N rows of the stream from x, this rank's own rows; x itself unless rows are split. In
// `pass.temporaries`.
Tensor gather_rows(Pass& pass, Tensor x);

// The same, beside the work that follows. each() or all() must be called.
class GatheredRows {
 public:
  GatheredRows(Pass& pass, Tensor x);  // begins the gather
  Tensor all();                        // once all rows are there
  // Calls work(rows, these rows of x [n, C]) for ranges of rows that are all rows together, the own ones first or in
  // the order of the ranks.
  enum class First { own, lowest };
  template <class Work>
  void each(First first, Work work) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const size_t at = range_number(first, i);
      work(ranges_[at], arrived_rows(at));
    }
    all();  // own rows have left, too
  }

 private:
  size_t range_number(First first, size_t i) const;
  Tensor arrived_rows(size_t range);
  Pass& pass_;
  Tensor own_, all_;
  std::vector<RowRange> ranges_;
  std::vector<Event> arrived_;  // by range
};

// The sum over all shards of all ranks into y [own, C], after a product whose weight is split by
// columns.
class ShardSum {
 public:
  ShardSum(Pass& pass, Tensor y);    // takes memory from pass.temporaries
  Tensor part(int64_t shard) const;  // [N, C], to be written by this rank's shard of that number, from 0
  // Begins the sum of rows that `shard` has written, if it is the last. Ranges come in the order of the ranks.
  void written(int64_t shard, const RowRange& rows);
  // Calls work(rows, these rows of its part) for ranges of rows that are all rows together, each to be written.
  template <class Work>
  void each(int64_t shard, Work work) {
    for (const RowRange& rows : ranges_) work(rows, rows.of(part(shard))), written(shard, rows);
  }
  void finish();  // completes the sum in y

 private:
  void send(const RowRange& rows, const Tensor& sum);
  Pass& pass_;
  Tensor y_, parts_, summed_;  // [own, C]; [mine N, C]; where the sum of own rows arrives
  std::vector<RowRange> ranges_;
};

// Rows that a shard of a part works on.
struct ShardForward {
  GatheredRows& x;
  ShardSum& y;
  int64_t shard;
};
template <class Kept>
struct ShardBackwardInput {
  GatheredRows& dy;
  ShardSum& dx;
  int64_t shard;
  Kept keep{};
};

}  // namespace trireme
