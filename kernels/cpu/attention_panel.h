// Panels, the unit of work of both directions of attention: kColumns (query, query head) pairs that
// read one key-value head. Pair c of a row is query c / group and head c % group of the group, so
// the heads of a group walk the keys together.
#pragma once

#include <limits>
#include <utility>

#include "kernels/cpu/tile_product.h"

namespace trireme {

inline constexpr int64_t kTileKeys = round_up(64, kRows);  // keys whose scores are in L1 at the same time

// Base of a softmax: scores are multiplied by `kScale`, which costs nothing in a product that has a factor.
struct NaturalBase {
  static constexpr float kScale = 1, kLog = 1;
  static float power(float x) { return softmax_exp(x); }
};
// Less work, for products whose operands are rounded to bf16. In f32 the factor's rounding would be seen in the results.
struct BinaryBase {
  static constexpr float kScale = kLog2E, kLog = kLn2;
  static float power(float x) { return softmax_exp2(x); }
};

// The shape of an attention, forward or backward.
struct PanelSizes {
  int64_t rows, queries, keys, heads, kv_heads, group, head_size;  // B, T, S, H, K, H / K, D
  int64_t padded;                                                  // D rounded up to whole vectors: length of a packed row
  int64_t query_row, key_row, out_row;                             // elements between tokens: of q, of k and v, of out

  explicit PanelSizes(const auto& op)
      : rows(op.q.dim(0)),
        queries(op.q.dim(1)),
        keys(op.k.dim(1)),
        heads(op.q.dim(2)),
        kv_heads(op.k.dim(2)),
        group(heads / kv_heads),
        head_size(op.q.dim(3)),
        padded(round_up(head_size, kLanes)),
        query_row(row_of(op.q, op.qkv)),
        key_row(row_of(op.k, op.qkv)),
        out_row(heads * head_size) {}

  int64_t pairs() const { return queries * group; }
};

// A query and a head of its group.
struct Pair {
  int64_t query, member;
};

// A key-value head of a row, and the offsets of its keys and pairs.
struct KeyHead {
  const PanelSizes& sizes;
  int64_t row, kv;

  // Offset of row `key` in k, and of a pair's row in a tensor whose tokens are `row_size` elements apart.
  int64_t key_at(int64_t key) const { return (row * sizes.keys + key) * sizes.key_row + kv * sizes.head_size; }
  int64_t pair_at(const Pair& pair, int64_t row_size) const {
    return (row * sizes.queries + pair.query) * row_size + head_of(pair) * sizes.head_size;
  }
  // Offset of the pair's lse in [B, H, T].
  int64_t lse_at(const Pair& pair) const { return (row * sizes.heads + head_of(pair)) * sizes.queries + pair.query; }

 private:
  int64_t head_of(const Pair& pair) const { return kv * sizes.group + pair.member; }
};

// Throws Error if a document begins after its query, or before the row.
inline void check_documents(const auto& op) {
  if (!op.document_start) return;
  const PanelSizes sizes(op);
  const int32_t* start = op.document_start.template as<int32_t>();
  for (int64_t i = 0; i < op.document_start.size(); ++i) {
    const int64_t place = sizes.keys - sizes.queries + i % sizes.queries;
    require(start[i] >= 0 && start[i] <= place, text("document_start ", start[i], " of the query at place ", place));
  }
}

struct Panel {
  int64_t count;               // of its pairs
  int64_t begin, end;          // keys seen by any of them; from an even one on, as some products take two at a time
  int64_t all_begin, all_end;  // keys seen by all of them
  Pair pairs[kColumns];        // columns without a pair repeat the last one
  int32_t from[kColumns], to[kColumns];

  Panel(const auto& op, const PanelSizes& sizes, int64_t row, int64_t first)
      : count(std::min(kColumns, sizes.pairs() - first)), begin(sizes.keys), end(0), all_begin(0), all_end(sizes.keys) {
    const int32_t* start = op.document_start ? op.document_start.template as<int32_t>() + row * sizes.queries : nullptr;
    Pair pair{.query = first / sizes.group, .member = first % sizes.group};
    for (int64_t c = 0; c < kColumns; ++c) {
      pairs[c] = pair;
      const int64_t place = sizes.keys - sizes.queries + pair.query;
      int64_t lowest = start == nullptr ? 0 : start[pair.query];
      if (op.window > 0) lowest = std::max(lowest, place - op.window + 1);
      from[c] = static_cast<int32_t>(lowest);
      to[c] = static_cast<int32_t>(place + 1);
      begin = std::min(begin, lowest);
      end = std::max(end, place + 1);
      all_begin = std::max(all_begin, lowest);
      all_end = std::min(all_end, place + 1);
      if (c + 1 < count && ++pair.member == sizes.group) pair.member = 0, ++pair.query;
    }
    begin -= begin % 2;
  }

  // The pair after the last one.
  int64_t next(const PanelSizes& sizes) const { return pairs[count - 1].query * sizes.group + pairs[count - 1].member + 1; }

  // A block of columns may cross from the first vector to the second, and so take keys that the first one does not see: their
  // scores are zeros then.
  static constexpr bool kCrosses = kLanes % kRows != 0;
  // Columns of whole blocks that hold the pairs.
  int64_t in_blocks() const { return std::min(round_up(count, kRows), kColumns); }
  // Number of keys, among `keys` from `key` on, that columns of the first vector see, in whole blocks. Later columns see more.
  int64_t seen_by_first(int64_t key, int64_t keys) const {
    return std::min(round_up(std::max<int64_t>(to[kLanes - 1] - key, 0), kRows), keys);
  }
  // Scores of a block of keys from `key` on: of the columns that see any of them.
  BlockPart scores_of(int64_t key, const PanelSizes& sizes) const {
    return {.column = key < to[kLanes - 1] ? 0 : kLanes, .begin = 0, .end = sizes.head_size};
  }
  // Sums of kRows columns from c on over `keys` keys from `key` on, as far as they see them.
  BlockPart sums_of(int64_t c, int64_t key, int64_t keys) const {
    return {.column = 0, .begin = 0, .end = std::clamp<int64_t>(to[std::min(c + kRows, kColumns) - 1] - key, 0, keys)};
  }
  // Sums of keys from `key` on over the columns that see any of them.
  BlockPart gradients_of(int64_t key) const {
    return {.column = 0, .begin = std::min<int64_t>(std::upper_bound(to, to + count, key) - to, count), .end = count};
  }

  // Sets scores of `keys` keys from `key` on to -inf for pairs that do not see the key.
  void mask(float* scores, int64_t key, int64_t keys) const {
    if (key >= all_begin && key + keys <= all_end) return;
    for (int64_t j = 0; j < keys; ++j, scores += kColumns) {
      const int32_t at = static_cast<int32_t>(key + j);
#pragma omp simd
      for (int64_t c = 0; c < kColumns; ++c)
        scores[c] = at >= from[c] && at < to[c] ? scores[c] : -std::numeric_limits<float>::infinity();
    }
  }
};

// Keys [key, key + keys) and the pairs of a panel.
struct TileOfKeys {
  const Panel& panel;
  const PanelSizes& sizes;
  int64_t key, keys;

  BlockPart scores_of(int64_t j) const { return panel.scores_of(key + j, sizes); }
  BlockPart sums_of(int64_t c) const { return panel.sums_of(c, key, keys); }
  BlockPart gradients_of(int64_t j) const { return panel.gradients_of(key + j); }
};

// Converts one row of D elements to f32, times `scale`, padded with zeros.
template <class T>
inline void pack_row(const T* from, float* to, const PanelSizes& sizes, float scale = 1) {
#pragma omp simd
  for (int64_t d = 0; d < sizes.head_size; ++d) to[d] = to_float(from[d]) * scale;
  for (int64_t d = sizes.head_size; d < sizes.padded; ++d) to[d] = 0;
}

// Writes the first D elements of a packed row, times `scale`, rounded to T.
template <class T>
inline void unpack_row(const float* from, T* to, const PanelSizes& sizes, float scale = 1) {
#pragma omp simd
  for (int64_t d = 0; d < sizes.head_size; ++d) to[d] = trireme::to<T>(from[d] * scale);
}

// Floats of a head's packed keys: rows of `padded` floats, plus kRows rows, since products take
// kRows at a time.
inline int64_t packed_keys(const PanelSizes& sizes) { return (sizes.keys + kRows) * sizes.padded; }

// Prefetches a row that is read kAhead rows later: rows of one head are too far apart for the
// hardware prefetcher. Harmless past the last row.
inline constexpr int64_t kAhead = 8;
template <class T>
inline void prefetch_row(const T* row, int64_t size) {
  for (int64_t d = 0; d < size; d += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + d);
}

// Fetches rows of q (or out, dout) of the panel that begins at pair `first`, which is used next.
template <class T>
inline void fetch_pairs(const T* from, int64_t row_size, const KeyHead& head, int64_t first) {
  const PanelSizes& sizes = head.sizes;
  Pair pair{.query = first / sizes.group, .member = first % sizes.group};
  for (int64_t i = first; i < std::min(first + kColumns, sizes.pairs()); ++i) {
    prefetch_row(from + head.pair_at(pair, row_size), sizes.head_size);
    if (++pair.member == sizes.group) pair.member = 0, ++pair.query;
  }
}

// Packs keys (or values) [begin, end) of a head, then kRows rows of zeros.
template <class T>
inline void pack_keys(const T* from, float* to, const KeyHead& head, int64_t begin, int64_t end) {
  const PanelSizes& sizes = head.sizes;
  const T* at = from + head.key_at(begin);
  const int64_t step = sizes.key_row;
  for (int64_t j = begin; j < end; ++j, at += step, to += sizes.padded) {
    prefetch_row(at + kAhead * step, sizes.head_size);
    pack_row(at, to, sizes);
  }
  std::fill_n(to, kRows * sizes.padded, 0.0f);
}

struct PackedPairs {
  float *rows, *columns;  // [kColumns, padded], and its transpose
  float scale = 1;        // of both
};

// Packs a panel's rows of q (or dout), whose tokens are `row_size` elements apart, with zeros for columns without a pair.
template <class T>
inline void pack_pairs(const T* from, int64_t row_size, const PackedPairs& to, const KeyHead& head, const Panel& panel) {
  const PanelSizes& sizes = head.sizes;
  for (int64_t c = 0; c < panel.count; ++c)
    pack_row(from + head.pair_at(panel.pairs[c], row_size), to.rows + c * sizes.padded, sizes, to.scale);
  std::fill(to.rows + panel.count * sizes.padded, to.rows + kColumns * sizes.padded, 0.0f);
  transpose(to.rows, to.columns, sizes.padded);
}

// Divides one thread's scratch memory; each piece begins at a cache line.
class Pieces {
 public:
  int64_t floats() const { return floats_; }

 protected:
  int64_t take(int64_t floats) { return std::exchange(floats_, floats_ + round_up(floats, 16)); }

 private:
  int64_t floats_ = 0;
};

}  // namespace trireme
