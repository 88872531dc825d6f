// Backward attention, panel by panel as in forward, with recomputed probabilities p = exp(score -
// lse):
//   dp = dout v^T;   ds = p * (dp - delta), delta = dout . out;   dv += p^T dout;   dk += ds^T q;   dq += ds k
// One thread owns a key-value head: it sums dk and dv in f32 over all queries of all heads of the
// group in the order of the pairs. So the bits do not depend on the number of threads. Scratch
// memory of a thread: four f32 copies of the head's keys, and one tile.
#include <omp.h>

#include <cmath>

#include "kernels/cpu/attention_panel.h"
#include "kernels/device.h"
#include "kernels/ops/attention.h"

namespace trireme {
namespace {

struct Scratch : Pieces {
  int64_t k, v, dk, dv, q, q_columns, dout, dout_columns, p, dp, dq;
  explicit Scratch(const PanelSizes& sizes)
      : k(take(packed_keys(sizes))),
        v(take(packed_keys(sizes))),
        dk(take(packed_keys(sizes))),
        dv(take(packed_keys(sizes))),
        q(take(kColumns * sizes.padded)),
        q_columns(take(kColumns * sizes.padded)),
        dout(take(kColumns * sizes.padded)),
        dout_columns(take(kColumns * sizes.padded)),
        p(take(kTileKeys * kColumns)),
        dp(take(kTileKeys * kColumns)),
        dq(take(kColumns * sizes.padded)) {}
};

// lse and delta = dout . out for each pair of a panel. Zero in columns without a pair, so that p is
// finite and ds is 0.
template <class T>
struct Rows {
  alignas(64) float lse[kColumns] = {}, delta[kColumns] = {};

  Rows(const AttentionBackward& op, const KeyHead& head, const Panel& panel) {
    const PanelSizes& sizes = head.sizes;
    const T *const all_dout = op.dout.as<T>(), *const all_out = op.out.as<T>();
    const float* const all_lse = op.lse.as<float>();
    for (int64_t c = 0; c < panel.count; ++c) {
      const int64_t at = head.pair_at(panel.pairs[c], sizes.out_row);
      const T *dout = all_dout + at, *out = all_out + at;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t d = 0; d < sizes.head_size; ++d) sum += to_float(dout[d]) * to_float(out[d]);
      delta[c] = sum;
      lse[c] = all_lse[head.lse_at(panel.pairs[c])];
    }
  }

  // Turns scores into p and dp into ds: `keys` rows, of the first vector only `of_first`.
  void differentiate(float* scores, float* dp, int64_t keys, int64_t of_first) const {
    for (int64_t j = 0; j < of_first; ++j) differentiate_row<0>(scores + j * kColumns, dp + j * kColumns);
    for (int64_t j = of_first; j < keys; ++j) {
      if constexpr (Panel::kCrosses) store(dp + j * kColumns, Vec{});
      differentiate_row<kLanes>(scores + j * kColumns, dp + j * kColumns);
    }
  }

 private:
  // Columns from `first` on.
  template <int64_t first>
  void differentiate_row(float* scores, float* dp) const {
#pragma omp simd
    for (int64_t c = first; c < kColumns; ++c) {
      const float p = softmax_exp(scores[c] - lse[c]);
      scores[c] = p;
      dp[c] = p * (dp[c] - delta[c]);
    }
  }
};

// Products of a panel with a tile of keys, in the thread's memory. k, v, dk and dv begin at key 0.
struct PanelTiles {
  const PanelSizes& sizes;
  const Panel& panel;
  const Scratch& at;
  float* memory;

  // Computes p = scores and dp of `keys` keys from `key` on; `keys` is a multiple of kRows.
  void multiply_keys(int64_t key, int64_t keys) const {
    const int64_t d = sizes.padded;
    const auto part_of = [&](int64_t j) { return panel.scores_of(key + j, sizes); };
    multiply<Walk::rows, Start::zero>({.c = memory + at.p,
                                       .ldc = kColumns,
                                       .a = memory + at.k + key * d,
                                       .lda = d,
                                       .b = memory + at.q_columns,
                                       .ldb = kColumns,
                                       .m = keys,
                                       .n = kColumns},
                                      part_of);
    multiply<Walk::rows, Start::zero>({.c = memory + at.dp,
                                       .ldc = kColumns,
                                       .a = memory + at.v + key * d,
                                       .lda = d,
                                       .b = memory + at.dout_columns,
                                       .ldb = kColumns,
                                       .m = keys,
                                       .n = kColumns},
                                      part_of);
  }

  // dv += p^T dout, dk += ds^T q, dq += ds k, with ds in place of dp.
  void add_gradients(int64_t key, int64_t keys) const {
    const int64_t d = sizes.padded;
    const auto part_of = [&](int64_t j) { return panel.gradients_of(key + j); };
    multiply<Walk::rows, Start::sum>({.c = memory + at.dv + key * d,
                                      .ldc = d,
                                      .a = memory + at.p,
                                      .lda = kColumns,
                                      .b = memory + at.dout,
                                      .ldb = d,
                                      .m = round_up(keys, kRows),
                                      .n = d},
                                     part_of);
    multiply<Walk::rows, Start::sum>({.c = memory + at.dk + key * d,
                                      .ldc = d,
                                      .a = memory + at.dp,
                                      .lda = kColumns,
                                      .b = memory + at.q,
                                      .ldb = d,
                                      .m = round_up(keys, kRows),
                                      .n = d},
                                     part_of);
    multiply<Walk::columns, Start::sum>({.c = memory + at.dq,
                                         .ldc = d,
                                         .a = memory + at.dp,
                                         .lda = kColumns,
                                         .b = memory + at.k + key * d,
                                         .ldb = d,
                                         .m = panel.in_blocks(),
                                         .n = d},
                                        [&](int64_t c) { return panel.sums_of(c, key, keys); });
  }
};

// Adds a panel's contribution to dq, dk and dv.
template <class T>
void go_back(const AttentionBackward& op, const KeyHead& head, const Panel& panel, float* memory) {
  const PanelSizes& sizes = head.sizes;
  const Scratch at(sizes);
  pack_pairs(op.q.as<T>(), sizes.query_row, {.rows = memory + at.q, .columns = memory + at.q_columns, .scale = op.scale}, head,
             panel);
  pack_pairs(op.dout.as<T>(), sizes.out_row, {.rows = memory + at.dout, .columns = memory + at.dout_columns}, head, panel);
  const Rows<T> rows(op, head, panel);
  const PanelTiles tiles{.sizes = sizes, .panel = panel, .at = at, .memory = memory};
  const auto dq_of = [&, all = op.dq.as<T>()](int64_t c) { return all + head.pair_at(panel.pairs[c], sizes.query_row); };
  for (int64_t c = 0; c < panel.count; ++c) fetch_to_write(dq_of(c), sizes.head_size * static_cast<int64_t>(sizeof(T)));
  float* const dq = memory + at.dq;
  std::fill_n(dq, kColumns * sizes.padded, 0.0f);
  for (int64_t key = panel.begin; key < panel.end; key += kTileKeys) {
    const int64_t keys = std::min(kTileKeys, panel.end - key), packed = round_up(keys, kRows);
    tiles.multiply_keys(key, packed);
    panel.mask(memory + at.p, key, packed);
    rows.differentiate(memory + at.p, memory + at.dp, packed, panel.seen_by_first(key, packed));
    tiles.add_gradients(key, keys);
  }
  for (int64_t c = 0; c < panel.count; ++c) unpack_row(dq + c * sizes.padded, dq_of(c), sizes, op.scale);
}

template <class T>
void go_back(const AttentionBackward& op, const KeyHead& head, float* memory) {
  const PanelSizes& sizes = head.sizes;
  const Scratch at(sizes);
  pack_keys(op.k.as<T>(), memory + at.k, head, 0, sizes.keys);
  pack_keys(op.v.as<T>(), memory + at.v, head, 0, sizes.keys);
  std::fill_n(memory + at.dk, packed_keys(sizes), 0.0f);
  std::fill_n(memory + at.dv, packed_keys(sizes), 0.0f);
  for (int64_t first = 0; first < sizes.pairs(); first += kColumns) go_back<T>(op, head, Panel(op, sizes, head.row, first), memory);
  for (int64_t key = 0; key < sizes.keys; ++key) {  // the packed q already contains the scale of dk
    T *const dk = op.dk.as<T>() + head.key_at(key), *const dv = op.dv.as<T>() + head.key_at(key);
    fetch_to_write(dk + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    fetch_to_write(dv + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    unpack_row(memory + at.dk + key * sizes.padded, dk, sizes);
    unpack_row(memory + at.dv + key * sizes.padded, dv, sizes);
  }
}

}  // namespace

void launch(const Cpu& cpu, const AttentionBackward& op) {
  check_documents(op);
  const PanelSizes sizes(op);
  const int threads = omp_get_max_threads();
  const int64_t stride = Scratch(sizes).floats();
  if (op.dq.size() == 0) return;
  float* memory = reinterpret_cast<float*>(cpu.workspace->reserve(threads * stride * 4));
  with_dtype(op.q.dtype(), [&](auto zero) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < sizes.rows * sizes.kv_heads; ++i) {
      const KeyHead head{.sizes = sizes, .row = i / sizes.kv_heads, .kv = i % sizes.kv_heads};
      go_back<decltype(zero)>(op, head, memory + omp_get_thread_num() * stride);
    }
  });
}

}  // namespace trireme
