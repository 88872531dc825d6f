// Tensor parallelism: every part of a model is `count` shards of equal shape, of which each rank of
// the tp group computes some.
//
// Columns of the first product of a part and rows of the second are split (Shoeybi et al.,
// "Megatron-LM", 2019), and so are the rows of the vocabulary. With `sequence`, each rank holds its
// own rows of the residual stream (Korthikanti et al., "Reducing activation recomputation in large
// transformer models", 2022).
#pragma once

#include "kernels/stream.h"
#include "model/config.h"
#include "parallel/comm.h"

namespace trireme {

struct Shard {
  int64_t index = 0, count = 1;
};

struct TensorParallel {
  int64_t count = 1;              // shards of the model
  int64_t first = 0, mine = 1;    // this rank's shards
  const Comm* ranks = &kAlone;    // the tp group
  const Comm* sharing = &kAlone;  // ranks of the group that share this rank's key-value head
  bool sequence = false;          // rows of the stream are split among the ranks
  Stream* beside = nullptr;       // lane for exchanges beside the products that need them; absent: they take turns
  // Sum over shards in f32 in the order of a tree over all shards, and over rows in `count` parts:
  // the same bits for any number of ranks.
  bool exact = false;

  Shard shard(int64_t i) const { return {.index = first + i, .count = count}; }
  int64_t row_parts() const { return sequence ? ranks->size() : 1; }
};

// The whole model: one shard.
inline const TensorParallel kWhole;

// Rows of the vocabulary that each shard has, padding included.
inline int64_t shard_vocab(const ModelConfig& config, int64_t count) {
  const int64_t rows = (config.vocab + count - 1) / count, multiple = config.vocab_multiple;
  return (rows + multiple - 1) / multiple * multiple;
}

// The sizes of one shard: heads, kv_heads, ffn and vocab, the last rounded up. If there are fewer
// kv heads than shards, several shards share one.
inline ModelConfig shard_config(const ModelConfig& config, int64_t count) {
  ModelConfig shard = config;
  shard.heads = config.heads / count;
  shard.kv_heads = config.kv_heads > count ? config.kv_heads / count : 1;
  shard.ffn = config.ffn / count;
  shard.vocab = shard_vocab(config, count);
  return shard;
}

// The range [first, first + valid) of the vocabulary that a shard has.
struct VocabRange {
  int64_t first, valid;
};
inline VocabRange vocab_range(const ModelConfig& config, const Shard& shard) {
  const int64_t rows = shard_vocab(config, shard.count), first = std::min(shard.index * rows, config.vocab);
  return {.first = first, .valid = std::min(rows, config.vocab - first)};
}

}  // namespace trireme
