// Forward attention, panel by panel: scores of 64 keys x kColumns pairs, their running softmax, out
// += probabilities v.
// A pair is one lane of every vector, so the softmax needs no sums across lanes. Keys and values of
// a head are converted to f32, or copied as pairs of bf16, once per chunk of panels, and reread from L2.
#include <omp.h>

#include <cmath>

#include "kernels/cpu/attention_pairs.h"
#include "kernels/device.h"
#include "kernels/ops/attention.h"

namespace trireme {
namespace {

// Maximum of an empty set of scores: finite, so that differences are finite too.
constexpr float kNothing = std::numeric_limits<float>::lowest();

// A panel's products in f32, and their memory.
template <class T>
class PlainPanel : Pieces {
 public:
  using Base = NaturalBase;
  explicit PlainPanel(const PanelSizes& sizes, float* memory = nullptr)
      : k_(take(packed_keys(sizes))),
        v_(take(packed_keys(sizes))),
        rows_(take(kColumns * sizes.padded)),
        columns_(take(kColumns * sizes.padded)),
        scores_(take(kTileKeys * kColumns)),
        out_(take(kColumns * sizes.padded)),
        memory_(memory) {}
  using Pieces::floats;
  float* scores() const { return memory_ + scores_; }  // [kTileKeys, kColumns]
  float* out() const { return memory_ + out_; }        // [kColumns, padded]

  // Packs keys and values [begin, end) of a head. `begin` is even.
  void pack(const AttentionForward& op, const KeyHead& head, int64_t begin, int64_t end) {
    pack_keys(op.k.as<T>(), memory_ + k_, head, begin, end);
    pack_keys(op.v.as<T>(), memory_ + v_, head, begin, end);
  }
  void pack(const AttentionForward& op, const KeyHead& head, const Panel& panel) {
    pack_pairs(op.q.as<T>(), head.sizes.query_row, {.rows = memory_ + rows_, .columns = memory_ + columns_, .scale = op.scale},
               head, panel);
  }
  // Computes the scores of a tile of keys. `first` is the first key packed.
  void multiply_keys(const AttentionForward&, const TileOfKeys& tile, int64_t first) const {
    const auto& [panel, sizes, key, keys] = tile;
    multiply<Walk::rows, Start::zero>({.c = scores(),
                                       .ldc = kColumns,
                                       .a = memory_ + k_ + (key - first) * sizes.padded,
                                       .lda = sizes.padded,
                                       .b = memory_ + columns_,
                                       .ldb = kColumns,
                                       .m = round_up(keys, kRows),
                                       .n = kColumns},
                                      [&](int64_t j) { return tile.scores_of(j); });
  }
  // out = factor * out + probabilities v.
  void add_values(const TileOfKeys& tile, int64_t first, const float* factor) const {
    const auto& [panel, sizes, key, keys] = tile;
    multiply<Walk::columns, Start::scaled>({.c = out(),
                                            .ldc = sizes.padded,
                                            .a = scores(),
                                            .lda = kColumns,
                                            .b = memory_ + v_ + (key - first) * sizes.padded,
                                            .ldb = sizes.padded,
                                            .m = panel.in_blocks(),
                                            .n = sizes.padded,
                                            .scale = factor},
                                           [&](int64_t c) { return tile.sums_of(c); });
  }

 private:
  int64_t k_, v_, rows_, columns_, scores_, out_;
  float* memory_;
};

// The same by pairs of bf16; probabilities are rounded for their product with v.
class PairedPanel : Pieces {
 public:
  using Base = BinaryBase;
  explicit PairedPanel(const PanelSizes& sizes, float* memory = nullptr)
      : k_(take(copied_keys(sizes))),
        v_(take(paired_keys(sizes))),
        rows_(take(kColumns * words_of(sizes))),
        columns_(take(kColumns * words_of(sizes))),
        scores_(take(kTileKeys * kColumns)),
        pairs_(take(kTileKeys * kColumns / 2)),
        out_(take(kColumns * sizes.padded)),
        memory_(memory) {}
  using Pieces::floats;
  float* scores() const { return memory_ + scores_; }
  float* out() const { return memory_ + out_; }

  void pack(const AttentionForward& op, const KeyHead& head, int64_t begin, int64_t end) {
    copy_keys(op.k.as<Bf16>(), words_at(memory_ + k_), head, begin, end);
    pair_keys(op.v.as<Bf16>(), words_at(memory_ + v_), head, begin, end);
  }
  void pack(const AttentionForward& op, const KeyHead& head, const Panel& panel) {
    pack_columns(op.q.as<Bf16>(), head.sizes.query_row, words_at(memory_ + rows_), words_at(memory_ + columns_), head, panel);
  }
  void multiply_keys(const AttentionForward& op, const TileOfKeys& tile, int64_t first) const {
    const auto& [panel, sizes, key, keys] = tile;
    multiply_blocks<Walk::rows, Start::zero>({.c = scores(),
                                              .ldc = kColumns,
                                              .a = words_at(memory_ + k_) + (key - first) * words_of(sizes),
                                              .lda = words_of(sizes),
                                              .b = words_at(memory_ + columns_),
                                              .ldb = kColumns,
                                              .n = kColumns,
                                              .scale = op.scale * Base::kScale},
                                             round_up(keys, kRows), [&](int64_t j) { return tile.scores_of(j); });
  }
  void add_values(const TileOfKeys& tile, int64_t first, const float* factor) const {
    const auto& [panel, sizes, key, keys] = tile;
    round_to_pairs(scores(), keys, panel.seen_by_first(key, keys), words_at(memory_ + pairs_));
    multiply_blocks<Walk::columns, Start::scaled>({.c = out(),
                                                   .ldc = sizes.padded,
                                                   .a = words_at(memory_ + pairs_),
                                                   .lda = kColumns,
                                                   .b = words_at(memory_ + v_) + (key - first) / 2 * sizes.padded,
                                                   .ldb = sizes.padded,
                                                   .n = sizes.padded,
                                                   .factor = factor},
                                                  panel.in_blocks(), [&](int64_t c) { return tile.sums_of(c); });
  }

 private:
  int64_t k_, v_, rows_, columns_, scores_, pairs_, out_;
  float* memory_;
};

// Running softmax of each pair over the keys seen so far: powers of score - top sum to `sum`.
template <class Base>
struct Running {
  alignas(64) float top[kColumns], sum[kColumns], factor[kColumns];

  Running() {
    std::fill_n(top, kColumns, kNothing);
    std::fill_n(sum, kColumns, 0.0f);
  }

  // Adds `keys` rows of scores, of the first vector only `of_first`, and turns them into powers; earlier sums are
  // multiplied by `factor`.
  void add(float* scores, int64_t keys, int64_t of_first) {
    Vec high[2] = {load(top), load(top + kLanes)};
    const auto raise = [&](int i, int64_t j) {
      const Vec score = load(scores + j * kColumns + i * kLanes);
      high[i] = score > high[i] ? score : high[i];
    };
    for (int64_t j = 0; j < of_first; ++j) raise(0, j), raise(1, j);
    for (int64_t j = of_first; j < keys; ++j) raise(1, j);
    alignas(64) float total[kColumns] = {};
    store(total, high[0]), store(total + kLanes, high[1]);
#pragma omp simd
    for (int64_t c = 0; c < kColumns; ++c) {
      factor[c] = Base::power(top[c] - total[c]);
      top[c] = total[c];
      total[c] = sum[c] * factor[c];
    }
    for (int64_t j = 0; j < of_first; ++j) add_row<0>(scores + j * kColumns, total);
    for (int64_t j = of_first; j < keys; ++j) {
      if constexpr (Panel::kCrosses) store(scores + j * kColumns, Vec{});
      add_row<kLanes>(scores + j * kColumns, total);
    }
    std::copy_n(total, kColumns, sum);
  }

 private:
  // Columns from `first` on.
  template <int64_t first>
  void add_row(float* scores, float* total) const {
#pragma omp simd
    for (int64_t c = first; c < kColumns; ++c) {
      const float p = Base::power(scores[c] - top[c]);
      scores[c] = p;
      total[c] += p;
    }
  }
};

// Pairs [first, last) of one key-value head.
struct Chunk {
  KeyHead head;
  int64_t first, last;
};

// A pair's sums over all keys: of powers of score - top times v, [D], and of powers. `top` has the natural base.
struct PairSums {
  const float* out;
  float top, sum;
};

// Writes rows of out, and their lse.
template <class T>
struct PairWriter {
  T* out;
  float* lse;
  const KeyHead& head;

  PairWriter(const AttentionForward& op, const KeyHead& head) : out(op.out.as<T>()), lse(op.lse.as<float>()), head(head) {}

  void fetch(const Pair& pair) const {
    fetch_to_write(out + head.pair_at(pair, head.sizes.out_row), head.sizes.head_size * static_cast<int64_t>(sizeof(T)));
  }
  void write(const Pair& pair, const PairSums& sums) const {
    unpack_row(sums.out, out + head.pair_at(pair, head.sizes.out_row), head.sizes, 1 / sums.sum);
    lse[head.lse_at(pair)] = sums.top + std::log(sums.sum);
  }
};

// The keys that pairs [first, last) see.
struct KeyRange {
  int64_t begin, end;
};
KeyRange keys_seen(const AttentionForward& op, const Chunk& chunk) {
  const PanelSizes& sizes = chunk.head.sizes;
  KeyRange seen{.begin = 0, .end = sizes.keys - sizes.queries + (chunk.last - 1) / sizes.group + 1};
  if (!op.document_start && op.window == 0) return seen;
  seen.begin = seen.end;
  for (int64_t first = chunk.first; first < chunk.last; first += kColumns)
    seen.begin = std::min(seen.begin, Panel(op, sizes, chunk.head.row, first).begin);
  return seen;
}

template <class T, class Products>
void attend(const AttentionForward& op, const Chunk& chunk, float* memory) {
  const KeyHead& head = chunk.head;
  const PanelSizes& sizes = head.sizes;
  Products products(sizes, memory);
  float *const scores = products.scores(), *const out = products.out();

  const PairWriter<T> writer(op, head);
  const auto [begin, end] = keys_seen(op, chunk);
  products.pack(op, head, begin, end);

  for (int64_t first = chunk.first; first < chunk.last; first += kColumns) {
    const Panel panel(op, sizes, head.row, first);
    products.pack(op, head, panel);
    for (int64_t c = 0; c < panel.count; ++c) writer.fetch(panel.pairs[c]);
    std::fill_n(out, kColumns * sizes.padded, 0.0f);
    Running<typename Products::Base> softmax;
    for (int64_t key = panel.begin; key < panel.end; key += kTileKeys) {
      const TileOfKeys tile{.panel = panel, .sizes = sizes, .key = key, .keys = std::min(kTileKeys, panel.end - key)};
      products.multiply_keys(op, tile, begin);
      panel.mask(scores, key, tile.keys);
      softmax.add(scores, tile.keys, panel.seen_by_first(key, tile.keys));
      products.add_values(tile, begin, softmax.factor);
    }
    for (int64_t c = 0; c < panel.count; ++c)
      writer.write(panel.pairs[c],
                   {.out = out + c * sizes.padded, .top = softmax.top[c] * Products::Base::kLog, .sum = softmax.sum[c]});
  }
}

template <class T, class Products>
void attend_panels(const Cpu& cpu, const AttentionForward& op, const PanelSizes& sizes) {
  const int threads = omp_get_max_threads();
  const int64_t heads = sizes.rows * sizes.kv_heads, panels = (sizes.pairs() + kColumns - 1) / kColumns;
  // Four chunks for each thread if there are enough panels. Those at the end of a row see the most
  // keys and come first.
  const int64_t per_head = std::clamp<int64_t>((4 * threads + heads - 1) / heads, 1, panels);
  const int64_t stride = Products(sizes).floats();
  float* memory = reinterpret_cast<float*>(cpu.workspace->reserve(threads * stride * 4));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < heads * per_head; ++i) {
    const int64_t head = i % heads, part = per_head - 1 - i / heads;
    const Chunk chunk{.head = {.sizes = sizes, .row = head / sizes.kv_heads, .kv = head % sizes.kv_heads},
                      .first = panels * part / per_head * kColumns,
                      .last = std::min(panels * (part + 1) / per_head * kColumns, sizes.pairs())};
    attend<T, Products>(op, chunk, memory + omp_get_thread_num() * stride);
  }
}

// One query at the end of many keys, as in generation. Since it does not fill a panel, keys are
// read in place and in the order of memory: a tile for all heads in turn.
struct LastQuery {
  float *q, *out;  // [D]: scaled q; the sum of exp(score - top) v so far
  float &top, &sum;

  static int64_t floats(const PanelSizes& sizes) { return 2 * sizes.padded + 16; }
  LastQuery(float* memory, const PanelSizes& sizes)
      : q(memory), out(q + sizes.padded), top(out[sizes.padded]), sum(out[sizes.padded + 1]) {}

  // Adds `keys` keys that are `step` elements apart.
  template <class T>
  void add(const T* k, const T* v, int64_t keys, int64_t step, int64_t size) const {
    float scores[kTileKeys], high = top, total = 0;
    for (int64_t j = 0; j < keys; ++j, k += step) {
      prefetch_row(k + kAhead * step, size);
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (int64_t d = 0; d < size; ++d) score += q[d] * to_float(k[d]);
      scores[j] = score;
      high = std::max(high, score);
    }
    const float factor = softmax_exp(top - high);
    for (int64_t d = 0; d < size; ++d) out[d] *= factor;
    for (int64_t j = 0; j < keys; ++j, v += step) {
      prefetch_row(v + kAhead * step, size);
      const float p = softmax_exp(scores[j] - high);
      total += p;
#pragma omp simd
      for (int64_t d = 0; d < size; ++d) out[d] += p * to_float(v[d]);
    }
    top = high;
    sum = sum * factor + total;
  }
};

// Query heads [first, last) of a row.
struct HeadRange {
  int64_t row, first, last;
};

template <class T>
void attend_last(const AttentionForward& op, const PanelSizes& sizes, const HeadRange& heads, float* memory) {
  const auto& [row, first, last] = heads;
  const int64_t size = sizes.head_size;
  const auto shared = [&](int64_t head) { return KeyHead{.sizes = sizes, .row = heads.row, .kv = head / sizes.group}; };
  const Panel panel(op, sizes, row, 0);
  const auto query = [&](int64_t head) { return LastQuery(memory + (head - heads.first) * LastQuery::floats(sizes), sizes); };
  for (int64_t head = first; head < last; ++head) {
    const LastQuery last_query = query(head);
    pack_row(op.q.as<T>() + row * sizes.query_row + head * size, last_query.q, sizes, op.scale);
    std::fill_n(last_query.out, size, 0.0f);
    last_query.top = kNothing, last_query.sum = 0;
  }
  for (int64_t key = panel.all_begin; key < panel.end; key += kTileKeys)  // one query: the same for all heads
    for (int64_t head = first; head < last; ++head) {
      const int64_t at = shared(head).key_at(key), keys = std::min(kTileKeys, panel.end - key);
      query(head).add(op.k.as<T>() + at, op.v.as<T>() + at, keys, sizes.key_row, size);
    }
  for (int64_t head = first; head < last; ++head) {
    const LastQuery done = query(head);
    PairWriter<T>(op, shared(head))
        .write({.query = 0, .member = head % sizes.group}, {.out = done.out, .top = done.top, .sum = done.sum});
  }
}

template <class T>
void attend_last(const Cpu& cpu, const AttentionForward& op, const PanelSizes& sizes) {
  const int64_t parts = std::clamp<int64_t>(omp_get_max_threads() / sizes.rows, 1, sizes.heads), stride = LastQuery::floats(sizes);
  float* memory = reinterpret_cast<float*>(cpu.workspace->reserve(sizes.rows * sizes.heads * stride * 4));
#pragma omp parallel for
  for (int64_t i = 0; i < sizes.rows * parts; ++i) {
    const HeadRange heads{
        .row = i / parts, .first = sizes.heads * (i % parts) / parts, .last = sizes.heads * (i % parts + 1) / parts};
    attend_last<T>(op, sizes, heads, memory + (heads.row * sizes.heads + heads.first) * stride);
  }
}

}  // namespace

void launch(const Cpu& cpu, const AttentionForward& op) {
  check_documents(op);
  const PanelSizes sizes(op);
  if (op.out.size() == 0) return;
  with_dtype(op.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (sizes.queries == 1) return attend_last<T>(cpu, op, sizes);
    if constexpr (kHasPairs && kDtype<T> == Dtype::bf16)
      if (cpu.multiplies_pairs) return attend_panels<T, PairedPanel>(cpu, op, sizes);
    attend_panels<T, PlainPanel<T>>(cpu, op, sizes);
  });
}

}  // namespace trireme
