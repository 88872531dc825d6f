// What parts exchange over the shards of a tensor-parallel model: rows of the stream before a product whose weight's rows are
// split, sums after one whose columns are.
#pragma once

#include "model/part.h"

namespace trireme {

// All N rows of x, which is this rank's own rows of the stream: x itself unless rows are split. In `pass.temporaries`.
Tensor gather_rows(Pass& pass, Tensor x);

// The sum over all shards of all ranks of what each of them adds to y [own, C]: after a product whose columns are split.
class ShardSum {
 public:
  ShardSum(Pass& pass, Tensor y);    // takes memory from pass.temporaries
  Tensor part(int64_t shard) const;  // [N, C], to be written by this rank's shard of that number, from 0
  void finish();                     // y is the sum

 private:
  Pass& pass_;
  Tensor y_, parts_;  // [own, C]; [mine N, C]
};

}  // namespace trireme
