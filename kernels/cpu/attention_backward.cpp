// Backward attention, panel by panel as in forward, with recomputed probabilities p = exp(score -
// lse):
//   dp = dout v^T;   ds = p * (dp - delta), delta = dout . out;   dv += p^T dout;   dk += ds^T q;   dq += ds k
// The queries of a key-value head are divided into parts, by the shape alone. dk and dv of a part are
// sums in f32 over all heads of the group in the order of the pairs; the parts' sums are added in
// their order. So the bits do not depend on the number of threads. A thread owns a head, or where
// there are too few heads for the threads, a part of one. Its scratch memory: four to seven f32
// copies of the head's keys, and one tile.
#include <omp.h>

#include <cmath>

#include "kernels/cpu/attention_pairs.h"
#include "kernels/device.h"
#include "kernels/ops/attention.h"

namespace trireme {
namespace {

// Sums of keys from `begin` on: rows of `padded` floats.
struct KeySums {
  float *dk, *dv;
  int64_t begin = 0;

  float* dk_of(int64_t key, const PanelSizes& sizes) const { return dk + (key - begin) * sizes.padded; }
  float* dv_of(int64_t key, const PanelSizes& sizes) const { return dv + (key - begin) * sizes.padded; }
};

// Products of a panel with tiles of keys in f32, and their memory. k and v begin at key 0.
template <class T>
class PlainGradients : Pieces {
 public:
  using Base = NaturalBase;
  using Element = T;
  explicit PlainGradients(const PanelSizes& sizes, float* memory = nullptr)
      : k_(take(packed_keys(sizes))),
        v_(take(packed_keys(sizes))),
        q_(take(kColumns * sizes.padded)),
        q_columns_(take(kColumns * sizes.padded)),
        dout_(take(kColumns * sizes.padded)),
        dout_columns_(take(kColumns * sizes.padded)),
        p_(take(kTileKeys * kColumns)),
        dp_(take(kTileKeys * kColumns)),
        dq_(take(kColumns * sizes.padded)),
        memory_(memory) {}
  using Pieces::floats;
  float* p() const { return memory_ + p_; }    // [kTileKeys, kColumns]: first the scores
  float* dp() const { return memory_ + dp_; }  // as large: dp, then ds
  float* dq() const { return memory_ + dq_; }  // [kColumns, padded]
  // The packed q has the scale already.
  static float scale_of_dk(const AttentionBackward&) { return 1; }

  // Packs keys and values [begin, end) of a head. `begin` is even.
  void pack(const AttentionBackward& op, const KeyHead& head, int64_t begin, int64_t end) const {
    const int64_t at = begin * head.sizes.padded;
    pack_keys(op.k.as<T>(), memory_ + k_ + at, head, begin, end);
    pack_keys(op.v.as<T>(), memory_ + v_ + at, head, begin, end);
  }
  void pack(const AttentionBackward& op, const KeyHead& head, const Panel& panel) const {
    pack_pairs(op.q.as<T>(), head.sizes.query_row, {.rows = memory_ + q_, .columns = memory_ + q_columns_, .scale = op.scale}, head,
               panel);
    pack_pairs(op.dout.as<T>(), head.sizes.out_row, {.rows = memory_ + dout_, .columns = memory_ + dout_columns_}, head, panel);
  }
  // Computes scores and dp, of whole blocks of keys.
  void multiply_keys(const AttentionBackward&, const TileOfKeys& tile) const {
    const auto& [panel, sizes, key, keys] = tile;
    for (const auto& [to, rows, columns] : {std::tuple(p_, k_, q_columns_), {dp_, v_, dout_columns_}})
      multiply<Walk::rows, Start::zero>({.c = memory_ + to,
                                         .ldc = kColumns,
                                         .a = memory_ + rows + key * sizes.padded,
                                         .lda = sizes.padded,
                                         .b = memory_ + columns,
                                         .ldb = kColumns,
                                         .m = round_up(keys, kRows),
                                         .n = kColumns},
                                        [&](int64_t j) { return tile.scores_of(j); });
  }
  // dv += p^T dout, dk += ds^T q, dq += ds k.
  void add_gradients(const TileOfKeys& tile, const KeySums& sums) const {
    const auto& [panel, sizes, key, keys] = tile;
    const int64_t d = sizes.padded;
    for (const auto& [to, rows, other] : {std::tuple(sums.dv_of(key, sizes), p_, dout_), {sums.dk_of(key, sizes), dp_, q_}})
      multiply<Walk::rows, Start::sum>({.c = to,
                                        .ldc = d,
                                        .a = memory_ + rows,
                                        .lda = kColumns,
                                        .b = memory_ + other,
                                        .ldb = d,
                                        .m = round_up(keys, kRows),
                                        .n = d},
                                       [&](int64_t j) { return tile.gradients_of(j); });
    multiply<Walk::columns, Start::sum>(
        {.c = dq(), .ldc = d, .a = dp(), .lda = kColumns, .b = memory_ + k_ + key * d, .ldb = d, .m = panel.in_blocks(), .n = d},
        [&](int64_t c) { return tile.sums_of(c); });
  }

 private:
  int64_t k_, v_, q_, q_columns_, dout_, dout_columns_, p_, dp_, dq_;
  float* memory_;
};

// The same by pairs of bf16; p and ds are rounded for their products.
class PairedGradients : Pieces {
 public:
  using Base = BinaryBase;
  using Element = Bf16;
  explicit PairedGradients(const PanelSizes& sizes, float* memory = nullptr)
      : k_(take(copied_keys(sizes))),
        v_(take(copied_keys(sizes))),
        k_pairs_(take(paired_keys(sizes))),
        rows_(take(kColumns * words_of(sizes))),
        q_(take(kColumns / 2 * sizes.padded)),
        q_columns_(take(kColumns * words_of(sizes))),
        dout_(take(kColumns / 2 * sizes.padded)),
        dout_columns_(take(kColumns * words_of(sizes))),
        p_(take(kTileKeys * kColumns)),
        dp_(take(kTileKeys * kColumns)),
        p_rows_(take(kTileKeys * kColumns / 2)),
        ds_rows_(take(kTileKeys * kColumns / 2)),
        ds_pairs_(take(kTileKeys * kColumns / 2)),
        dq_(take(kColumns * sizes.padded)),
        memory_(memory) {}
  using Pieces::floats;
  float* p() const { return memory_ + p_; }
  float* dp() const { return memory_ + dp_; }
  float* dq() const { return memory_ + dq_; }
  static float scale_of_dk(const AttentionBackward& op) { return op.scale; }

  void pack(const AttentionBackward& op, const KeyHead& head, int64_t begin, int64_t end) const {
    const int64_t words = words_of(head.sizes);
    copy_keys(op.k.as<Bf16>(), at(k_) + begin * words, head, begin, end);
    copy_keys(op.v.as<Bf16>(), at(v_) + begin * words, head, begin, end);
    pair_keys(op.k.as<Bf16>(), at(k_pairs_) + begin / 2 * head.sizes.padded, head, begin, end);
  }
  void pack(const AttentionBackward& op, const KeyHead& head, const Panel& panel) const {
    const auto pack = [&](const Tensor& from, int64_t row, int64_t pairs, int64_t columns) {
      pack_columns(from.as<Bf16>(), row, at(rows_), at(columns), head, panel);
      pair_columns(from.as<Bf16>(), row, at(pairs), head, panel);
    };
    pack(op.q, head.sizes.query_row, q_, q_columns_);
    pack(op.dout, head.sizes.out_row, dout_, dout_columns_);
  }
  void multiply_keys(const AttentionBackward& op, const TileOfKeys& tile) const {
    const auto& [panel, sizes, key, keys] = tile;
    const int64_t words = words_of(sizes);
    for (const auto& [to, rows, columns, scale] :
         {std::tuple(p_, k_, q_columns_, op.scale * Base::kScale), {dp_, v_, dout_columns_, 1.0f}})
      multiply_blocks<Walk::rows, Start::zero>({.c = memory_ + to,
                                                .ldc = kColumns,
                                                .a = at(rows) + key * words,
                                                .lda = words,
                                                .b = at(columns),
                                                .ldb = kColumns,
                                                .n = kColumns,
                                                .scale = scale},
                                               round_up(keys, kRows), [&](int64_t j) { return tile.scores_of(j); });
  }
  void add_gradients(const TileOfKeys& tile, const KeySums& sums) const {
    const auto& [panel, sizes, key, keys] = tile;
    const int64_t d = sizes.padded, whole = round_up(keys, kRows);
    round_to_rows(p(), whole, at(p_rows_));
    round_to_rows(dp(), whole, at(ds_rows_));
    round_to_pairs(dp(), keys, panel.seen_by_first(key, keys), at(ds_pairs_));
    for (const auto& [to, rows, other] :
         {std::tuple(sums.dv_of(key, sizes), p_rows_, dout_), {sums.dk_of(key, sizes), ds_rows_, q_}})
      multiply_blocks<Walk::rows, Start::sum>(
          {.c = to, .ldc = d, .a = at(rows), .lda = kColumns / 2, .b = at(other), .ldb = d, .n = d}, whole,
          [&](int64_t j) { return tile.gradients_of(j); });
    multiply_blocks<Walk::columns, Start::sum>(
        {.c = dq(), .ldc = d, .a = at(ds_pairs_), .lda = kColumns, .b = at(k_pairs_) + key / 2 * d, .ldb = d, .n = d},
        panel.in_blocks(), [&](int64_t c) { return tile.sums_of(c); });
  }

 private:
  Word* at(int64_t piece) const { return words_at(memory_ + piece); }

  int64_t k_, v_, k_pairs_, rows_, q_, q_columns_, dout_, dout_columns_, p_, dp_, p_rows_, ds_rows_, ds_pairs_, dq_;
  float* memory_;
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
    part.begin = op.window == 0 ? 0 : std::max<int64_t>(0, part.first - op.window + 1) / 2 * 2, part.end = part.last;
    parts.push_back(part);
    first = part.last;
  }
  return parts;
}

// lse in the products' base and delta = dout . out for each pair of a panel. Zero in columns without a pair, so that p is
// finite and ds is 0.
template <class T, class Base>
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
      lse[c] = all_lse[head.lse_at(panel.pairs[c])] * Base::kScale;
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
      const float p = Base::power(scores[c] - lse[c]);
      scores[c] = p;
      dp[c] = p * (dp[c] - delta[c]);
    }
  }
};

// Fetches what a head's first panel reads.
template <class T>
void fetch_panel(const AttentionBackward& op, const KeyHead& head, int64_t pair) {
  fetch_pairs(op.q.as<T>(), head.sizes.query_row, head, pair);
  fetch_pairs(op.dout.as<T>(), head.sizes.out_row, head, pair);
  fetch_pairs(op.out.as<T>(), head.sizes.out_row, head, pair);
}

// Writes a panel's dq and adds its dk and dv. The head's keys are packed.
template <class Products>
void go_back(const AttentionBackward& op, const KeyHead& head, const Products& products, const Panel& panel, const KeySums& sums) {
  using T = typename Products::Element;
  const PanelSizes& sizes = head.sizes;
  products.pack(op, head, panel);
  const Rows<T, typename Products::Base> rows(op, head, panel);
  const auto dq_of = [&, all = op.dq.as<T>()](int64_t c) { return all + head.pair_at(panel.pairs[c], sizes.query_row); };
  std::fill_n(products.dq(), kColumns * sizes.padded, 0.0f);
  for (int64_t key = panel.begin; key < panel.end; key += kTileKeys) {
    // The next panel's rows arrive while the last tile is computed: earlier, sums of dk and dv would displace them.
    const bool last = key + kTileKeys >= panel.end;
    const auto fetch = [&](const Tensor& from, int64_t row_size) {
      if (last) fetch_pairs(from.as<T>(), row_size, head, panel.next(sizes));
    };
    fetch(op.q, sizes.query_row);
    const TileOfKeys tile{.panel = panel, .sizes = sizes, .key = key, .keys = std::min(kTileKeys, panel.end - key)};
    const int64_t packed = round_up(tile.keys, kRows);
    products.multiply_keys(op, tile);
    fetch(op.dout, sizes.out_row);
    panel.mask(products.p(), key, packed);
    rows.differentiate(products.p(), products.dp(), packed, panel.seen_by_first(key, packed));
    fetch(op.out, sizes.out_row);
    for (int64_t c = 0; last && c < panel.count; ++c) fetch_to_write(dq_of(c), sizes.head_size * static_cast<int64_t>(sizeof(T)));
    products.add_gradients(tile, sums);
  }
  for (int64_t c = 0; c < panel.count; ++c) unpack_row(products.dq() + c * sizes.padded, dq_of(c), sizes, op.scale);
}

// Computes the sums of a part.
template <class Products>
void go_back(const AttentionBackward& op, const KeyHead& head, const Products& products, const Part& part, const KeySums& sums) {
  const PanelSizes& sizes = head.sizes;
  std::fill_n(sums.dk, part.floats(sizes), 0.0f);
  std::fill_n(sums.dv, part.floats(sizes), 0.0f);
  for (int64_t pair = part.first * sizes.group; pair < part.last * sizes.group; pair += kColumns)
    go_back(op, head, products, Panel(op, sizes, head.row, pair), sums);
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

// Writes dk and dv of keys [begin, end).
template <class Products>
void write(const AttentionBackward& op, const KeyHead& head, const KeySums& sums, int64_t begin, int64_t end) {
  using T = typename Products::Element;
  const PanelSizes& sizes = head.sizes;
  const float scale = Products::scale_of_dk(op);
  for (int64_t key = begin; key < end; ++key) {
    T *const dk = op.dk.as<T>() + head.key_at(key), *const dv = op.dv.as<T>() + head.key_at(key);
    fetch_to_write(dk + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    fetch_to_write(dv + kAhead * sizes.key_row, sizes.head_size * static_cast<int64_t>(sizeof(T)));
    unpack_row(sums.dk_of(key, sizes), dk, sizes, scale);
    unpack_row(sums.dv_of(key, sizes), dv, sizes);
  }
}

// All parts of all heads, and the memory that they need.
template <class Products>
struct Work {
  const AttentionBackward& op;
  PanelSizes sizes{op};
  std::vector<Part> parts = parts_of(op, sizes);
  int64_t heads = sizes.rows * sizes.kv_heads, threads = omp_get_max_threads();

  KeyHead head(int64_t i) const { return {.sizes = sizes, .row = i / sizes.kv_heads, .kv = i % sizes.kv_heads}; }
  int64_t scratch() const { return Products(sizes).floats(); }
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

template <class Products>
void go_back_by_heads(const Work<Products>& work, float* memory) {
  const int64_t stride = work.floats_by_heads() / work.threads, keys = work.sizes.keys, copy = work.all_keys();
#pragma omp parallel for schedule(dynamic) num_threads(work.threads)
  for (int64_t i = 0; i < work.heads; ++i) {
    const KeyHead head = work.head(i);
    float* const own = memory + omp_get_thread_num() * stride;
    const Products products(work.sizes, own);
    float* const sums = own + work.scratch();
    const KeySums all{.dk = sums + 2 * copy, .dv = sums + 3 * copy};
    fetch_panel<typename Products::Element>(work.op, head, 0);
    products.pack(work.op, head, 0, keys);
    if (work.parts.size() > 1) std::fill_n(all.dk, 2 * copy, 0.0f);
    for (const Part& part : work.parts) {
      const KeySums its{.dk = sums, .dv = sums + copy, .begin = part.begin};
      go_back(work.op, head, products, part, its);
      if (work.parts.size() > 1) add(work.sizes, all, part, its, 0, keys);
    }
    write<Products>(work.op, head, work.parts.size() > 1 ? all : KeySums{.dk = sums, .dv = sums + copy}, 0, keys);
  }
}

template <class Products>
void go_back_by_parts(const Work<Products>& work, float* memory) {
  constexpr int64_t kTogether = Work<Products>::kTogether;
  const auto parts = static_cast<int64_t>(work.parts.size());
  const int64_t stride = work.scratch() + 2 * kTogether * work.sizes.padded, of_head = 2 * work.floats_from(0);
  float* const all_sums = memory + work.threads * stride;
  const auto sums_of = [&](int64_t head, int64_t part) {
    float* const dk = all_sums + head * of_head + 2 * (work.floats_from(0) - work.floats_from(static_cast<size_t>(part)));
    const Part& its = work.parts[static_cast<size_t>(part)];
    return KeySums{.dk = dk, .dv = dk + its.floats(work.sizes), .begin = its.begin};
  };
#pragma omp parallel num_threads(work.threads)
  {
    float* const own = memory + omp_get_thread_num() * stride;
    const Products products(work.sizes, own);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < work.heads * parts; ++i) {
      const KeyHead head = work.head(i / parts);
      const Part& part = work.parts[static_cast<size_t>(i % parts)];
      fetch_panel<typename Products::Element>(work.op, head, part.first * work.sizes.group);
      products.pack(work.op, head, part.begin, part.end);
      go_back(work.op, head, products, part, sums_of(i / parts, i % parts));
    }
    const int64_t blocks = round_up(work.sizes.keys, kTogether) / kTogether;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < work.heads * blocks; ++i) {
      const int64_t begin = i % blocks * kTogether, end = std::min(begin + kTogether, work.sizes.keys);
      float* const dk = own + work.scratch();
      const KeySums sums{.dk = dk, .dv = dk + kTogether * work.sizes.padded, .begin = begin};
      std::fill_n(dk, 2 * kTogether * work.sizes.padded, 0.0f);
      for (int64_t part = 0; part < parts; ++part)
        add(work.sizes, sums, work.parts[static_cast<size_t>(part)], sums_of(i / blocks, part), begin, end);
      write<Products>(work.op, work.head(i / blocks), sums, begin, end);
    }
  }
}

template <class Products>
void go_back(const Cpu& cpu, const AttentionBackward& op) {
  const Work<Products> work{.op = op};
  const bool by_parts = work.by_parts();
  auto* const memory =
      reinterpret_cast<float*>(cpu.workspace->reserve(4 * (by_parts ? work.floats_by_parts() : work.floats_by_heads())));
  by_parts ? go_back_by_parts(work, memory) : go_back_by_heads(work, memory);
}

}  // namespace

void launch(const Cpu& cpu, const AttentionBackward& op) {
  check_documents(op);
  if (op.dq.size() == 0) return;
  with_dtype(op.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kHasPairs && kDtype<T> == Dtype::bf16)
      if (cpu.multiplies_pairs) return go_back<PairedGradients>(cpu, op);
    go_back<PlainGradients<T>>(cpu, op);
  });
}

}  // namespace trireme
