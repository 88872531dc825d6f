// Exchanges between the shards of a tensor-parallel model. They gather rows of the stream before a
// product whose weight is split by rows, and sum after one whose weight is split by columns.
#pragma once

#include "model/part.h"

namespace trireme {

// All N rows of the stream from x, this rank's own rows; x itself unless rows are split. In
// `pass.temporaries`.
Tensor gather_rows(Pass& pass, Tensor x);

// The sum over all shards of all ranks into y [own, C], after a product whose weight is split by
// columns.
class ShardSum {
 public:
  ShardSum(Pass& pass, Tensor y);    // takes memory from pass.temporaries
  Tensor part(int64_t shard) const;  // [N, C], to be written by this rank's shard of that number, from 0
  void finish();                     // completes the sum in y

 private:
  Pass& pass_;
  Tensor y_, parts_;  // [own, C]; [mine N, C]
};

}  // namespace trireme
