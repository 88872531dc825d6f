// Backward attention, panel by panel as in forward, with recomputed probabilities p = exp(score -
// lse):
//   dp = dout v^T;   ds = p * (dp - delta), delta = dout . out;   dv += p^T dout;   dk += ds^T q;   dq += ds k
// The queries of a key-value head are divided into parts, by the shape alone. dk and dv of a part are
// sums in f32 over all heads of the group in the order of the pairs; the parts' sums are added in
// their order. So the bits do not depend on the number of threads. A thread owns a head, or where
// there are too few heads for the threads, a part of one. Its scratch memory: four or six f32 copies of
// the head's keys, and one tile.
#include <omp.h>

#include <cmath>

#include "kernels/cpu/attention_panel.h"
#include "kernels/device.h"
#include "kernels/ops/attention.h"

namespace trireme {
namespace {

struct Scratch : Pieces {
  int64_t k, v, q, q_columns, dout, dout_columns, p, dp, dq;
  explicit Scratch(const PanelSizes& sizes)
      : k(take(packed_keys(sizes))),
        v(take(packed_keys(sizes))),
        q(take(kColumns * sizes.padded)),
        q_columns(take(kColumns * sizes.padded)),
        dout(take(kColumns * sizes.padded)),
        dout_columns(take(kColumns * sizes.padded)),
        p(take(kTileKeys * kColumns)),
        dp(take(kTileKeys * kColumns)),
        dq(take(kColumns * sizes.padded)) {}
};

// A part's queries, and the keys that any of them sees.
struct Part {
  int64_t first, last;  // queries [first, last)
  int64_t begin, end;   // keys

  int64_t floats(const PanelSizes& sizes) const { return round_up((end - begin + kRows) * sizes.padded, 16); }
};

// Parts of about as many pairs of query and key each.
std::vector<Part> parts_of(const AttentionBackward& op, const PanelSizes& sizes) {
  constexpr int64_t kLeast = 128, kMost = 8;  // queries; parts
  const int64_t count = std::clamp<int64_t>(sizes.queries / kLeast, 1, kMost);
  const bool triangle = op.window == 0 || op.window >= sizes.queries;
  std::vector<Part> parts;
  for (int64_t i = 0, first = 0; i < count; ++i) {
    const double share = static_cast<double>(i + 1) / static_cast<double>(count);
    const auto last = static_cast<int64_t>(static_cast<double>(sizes.queries) * (triangle ? std::sqrt(share) : share));
    Part part{.first = first, .last = i + 1 == count ? sizes.queries : last / kColumns * kColumns, .begin = 0, .end = 0};
    part.begin = op.window == 0 ? 0 : std::max<int64_t>(0, part.first - op.window + 1), part.end = part.last;
    parts.push_back(part);
    first = part.last;
  }
  return parts;
}

// Sums of keys from `begin` on: rows of `padded` floats.
struct KeySums {
  float *dk, *dv;
  int64_t begin = 0;
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

// Products of a panel with a tile of keys, in the thread's memory. k and v begin at key 0.
struct PanelTiles {
  const PanelSizes& sizes;
  const Panel& panel;
  const Scratch& at;
  float* memory;
  KeySums sums;

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
    multiply<Walk::rows, Start::sum>({.c = sums.dv + (key - sums.begin) * d,
                                      .ldc = d,
                                      .a = memory + at.p,
                                      .lda = kColumns,
                                      .b = memory + at.dout,
                                      .ldb = d,
                                      .m = round_up(keys, kRows),
                                      .n = d},
                                     part_of);
    multiply<Walk::rows, Start::sum>({.c = sums.dk + (key - sums.begin) * d,
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

// A thread's memory for the head whose k and v it holds.
struct HeadMemory {
  const KeyHead& head;
  float* memory;
};

// Writes a panel's dq and adds its dk and dv.
template <class T>
void go_back(const AttentionBackward& op, const HeadMemory& own, const Panel& panel, const KeySums& sums) {
  const auto& [head, memory] = own;
  const PanelSizes& sizes = head.sizes;
  const Scratch at(sizes);
  pack_pairs(op.q.as<T>(), sizes.query_row, {.rows = memory + at.q, .columns = memory + at.q_columns, .scale = op.scale}, head,
             panel);
  pack_pairs(op.dout.as<T>(), sizes.out_row, {.rows = memory + at.dout, .columns = memory + at.dout_columns}, head, panel);
  const Rows<T> rows(op, head, panel);
  const PanelTiles tiles{.sizes = sizes, .panel = panel, .at = at, .memory = memory, .sums = sums};
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

// Packs the keys and values that a part sees.
template <class T>
void pack(const AttentionBackward& op, const HeadMemory& own, int64_t begin, int64_t end) {
  const PanelSizes& sizes = own.head.sizes;
  const Scratch at(sizes);
  pack_keys(op.k.as<T>(), own.memory + at.k + begin * sizes.padded, own.head, begin, end);
  pack_keys(op.v.as<T>(), own.memory + at.v + begin * sizes.padded, own.head, begin, end);
}

// Computes the sums of a part.
template <class T>
void go_back(const AttentionBackward& op, const HeadMemory& own, const Part& part, const KeySums& sums) {
  const PanelSizes& sizes = own.head.sizes;
  std::fill_n(sums.dk, part.floats(sizes), 0.0f);
  std::fill_n(sums.dv, part.floats(sizes), 0.0f);
  for (int64_t pair = part.first * sizes.group; pair < part.last * sizes.group; pair += kColumns)
    go_back<T>(op, own, Panel(op, sizes, own.head.row, pair), sums);
}

// Adds rows of keys [begin, end), as far as the part has them.
void add(const PanelSizes& sizes, const KeySums& to, const Part& part, const KeySums& from, int64_t begin, int64_t end) {
  begin = std::max(begin, part.begin), end = std::min(end, part.end);
  for (const auto& [sum, more] : {std::pair(to.dk, from.dk), {to.dv, from.dv}}) {
    float* const into = sum + (begin - to.begin) * sizes.padded;
    const float* const own = more + (begin - part.begin) * sizes.padded;
    const int64_t count = (end - begin) * sizes.padded;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) into[i] += own[i];
  }
}

// Writes dk and dv of keys [begin, end): the packed q already contains the scale of dk.
template <class T>
void write(const AttentionBackward& op, const KeyHead& head, const KeySums& sums, int64_t begin, int64_t end) {
  const PanelSizes& sizes = head.sizes;
  for (int64_t key = begin; key < end; ++key) {
    T *const dk = op.dk.as<T>() + head.key_at(key), *const dv = op.dv.as<T>() + head.key_at(key);
    fetch_to_write(dk + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    fetch_to_write(dv + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    unpack_row(sums.dk + (key - sums.begin) * sizes.padded, dk, sizes);
    unpack_row(sums.dv + (key - sums.begin) * sizes.padded, dv, sizes);
  }
}

// All parts of all heads, and the memory that they need.
struct Work {
  const AttentionBackward& op;
  PanelSizes sizes{op};
  std::vector<Part> parts = parts_of(op, sizes);
  int64_t heads = sizes.rows * sizes.kv_heads, threads = omp_get_max_threads();

  KeyHead head(int64_t i) const { return {.sizes = sizes, .row = i / sizes.kv_heads, .kv = i % sizes.kv_heads}; }
  int64_t scratch() const { return Scratch(sizes).floats(); }
  int64_t all_keys() const { return round_up(packed_keys(sizes), 16); }
  // Floats of a head's dk, or dv, from part i on.
  int64_t floats_from(size_t i) const {
    int64_t all = 0;
    for (; i < parts.size(); ++i) all += parts[i].floats(sizes);
    return all;
  }
  // Threads that each own whole heads hold sums of a part, and of all parts if there are several.
  int64_t floats_by_heads() const { return threads * (scratch() + (parts.size() > 1 ? 4 : 2) * all_keys()); }
  int64_t floats_by_parts() const { return threads * (scratch() + 2 * kTogether * sizes.padded) + heads * 2 * floats_from(0); }
  // Whether a fifth of the threads would wait for others, if each had whole heads, and memory allows another division.
  bool by_parts() const {
    constexpr int64_t kLittle = 32 << 20;  // floats
    return parts.size() > 1 && 5 * heads < 4 * round_up(heads, threads) &&
           floats_by_parts() <= std::max(kLittle, floats_by_heads());
  }

  static constexpr int64_t kTogether = 64;  // keys whose parts are added at once
};

template <class T>
void go_back_by_heads(const Work& work, float* memory) {
  const int64_t stride = work.floats_by_heads() / work.threads, keys = work.sizes.keys, copy = work.all_keys();
#pragma omp parallel for schedule(dynamic) num_threads(work.threads)
  for (int64_t i = 0; i < work.heads; ++i) {
    const KeyHead head = work.head(i);
    const HeadMemory own{.head = head, .memory = memory + omp_get_thread_num() * stride};
    float* const sums = own.memory + work.scratch();
    const KeySums all{.dk = sums + 2 * copy, .dv = sums + 3 * copy};
    pack<T>(work.op, own, 0, keys);
    if (work.parts.size() > 1) std::fill_n(all.dk, 2 * copy, 0.0f);
    for (const Part& part : work.parts) {
      const KeySums its{.dk = sums, .dv = sums + copy, .begin = part.begin};
      go_back<T>(work.op, own, part, its);
      if (work.parts.size() > 1) add(work.sizes, all, part, its, 0, keys);
    }
    write<T>(work.op, head, work.parts.size() > 1 ? all : KeySums{.dk = sums, .dv = sums + copy}, 0, keys);
  }
}

template <class T>
void go_back_by_parts(const Work& work, float* memory) {
  const auto parts = static_cast<int64_t>(work.parts.size());
  const int64_t stride = work.scratch() + 2 * Work::kTogether * work.sizes.padded, of_head = 2 * work.floats_from(0);
  float* const all_sums = memory + work.threads * stride;
  const auto sums_of = [&](int64_t head, int64_t part) {
    float* const dk = all_sums + head * of_head + 2 * (work.floats_from(0) - work.floats_from(static_cast<size_t>(part)));
    const Part& its = work.parts[static_cast<size_t>(part)];
    return KeySums{.dk = dk, .dv = dk + its.floats(work.sizes), .begin = its.begin};
  };
#pragma omp parallel num_threads(work.threads)
  {
    float* const own_memory = memory + omp_get_thread_num() * stride;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < work.heads * parts; ++i) {
      const KeyHead head = work.head(i / parts);
      const HeadMemory own{.head = head, .memory = own_memory};
      const Part& part = work.parts[static_cast<size_t>(i % parts)];
      pack<T>(work.op, own, part.begin, part.end);
      go_back<T>(work.op, own, part, sums_of(i / parts, i % parts));
    }
    const int64_t blocks = round_up(work.sizes.keys, Work::kTogether) / Work::kTogether;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < work.heads * blocks; ++i) {
      const int64_t begin = i % blocks * Work::kTogether, end = std::min(begin + Work::kTogether, work.sizes.keys);
      float* const dk = own_memory + work.scratch();
      const KeySums sums{.dk = dk, .dv = dk + Work::kTogether * work.sizes.padded, .begin = begin};
      std::fill_n(dk, 2 * Work::kTogether * work.sizes.padded, 0.0f);
      for (int64_t part = 0; part < parts; ++part)
        add(work.sizes, sums, work.parts[static_cast<size_t>(part)], sums_of(i / blocks, part), begin, end);
      write<T>(work.op, work.head(i / blocks), sums, begin, end);
    }
  }
}

}  // namespace

void launch(const Cpu& cpu, const AttentionBackward& op) {
  check_documents(op);
  if (op.dq.size() == 0) return;
  const Work work{.op = op};
  const bool by_parts = work.by_parts();
  auto* const memory =
      reinterpret_cast<float*>(cpu.workspace->reserve(4 * (by_parts ? work.floats_by_parts() : work.floats_by_heads())));
  with_dtype(op.q.dtype(), [&](auto zero) {
    by_parts ? go_back_by_parts<decltype(zero)>(work, memory) : go_back_by_heads<decltype(zero)>(work, memory);
  });
}

}  // namespace trireme
