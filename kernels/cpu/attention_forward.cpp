// Forward attention, panel by panel: scores of 64 keys x kColumns pairs, their softmax as it stands so far, out += probabilities v.
// A pair is one lane of every vector, so the softmax needs no sums across lanes. Keys and values of a head are converted to f32
// once per chunk of panels, and reread from L2.
#include <omp.h>

#include "kernels/cpu/attention_panel.h"
#include "kernels/device.h"
#include "kernels/ops/attention.h"

namespace trireme {
namespace {

constexpr float kNothing = std::numeric_limits<float>::lowest();  // the maximum of no scores: finite, so that differences are too

struct Scratch : Pieces {
  int64_t k, v, rows, columns, scores, out;
  explicit Scratch(const AttentionSizes& sizes)
      : k(take(packed_keys(sizes))),
        v(take(packed_keys(sizes))),
        rows(take(kColumns * sizes.padded)),
        columns(take(kColumns * sizes.padded)),
        scores(take(kTileKeys * kColumns)),
        out(take(kColumns * sizes.padded)) {}
};

// The softmax of each pair over the keys seen so far: exp(score - top) sums to `sum`.
struct Running {
  alignas(64) float top[kColumns], sum[kColumns], factor[kColumns];

  Running() {
    std::fill_n(top, kColumns, kNothing);
    std::fill_n(sum, kColumns, 0.0f);
  }

  // Takes in `keys` rows of scores and makes them exp(score - top); what was summed before counts `factor` times.
  void add(float* scores, int64_t keys) {
    Vec high[2] = {load(top), load(top + kLanes)};
    for (int64_t j = 0; j < keys; ++j)
      for (int i = 0; i < 2; ++i) {
        const Vec score = load(scores + j * kColumns + i * kLanes);
        high[i] = score > high[i] ? score : high[i];
      }
    alignas(64) float total[kColumns] = {};
    store(total, high[0]), store(total + kLanes, high[1]);
#pragma omp simd
    for (int64_t c = 0; c < kColumns; ++c) {
      factor[c] = fast_exp(top[c] - total[c]);
      top[c] = total[c];
      total[c] = sum[c] * factor[c];
    }
    for (int64_t j = 0; j < keys; ++j)
#pragma omp simd
      for (int64_t c = 0; c < kColumns; ++c) {
        const float p = fast_exp(scores[j * kColumns + c] - top[c]);
        scores[j * kColumns + c] = p;
        total[c] += p;
      }
    std::copy_n(total, kColumns, sum);
  }
};

// Pairs [first, last) of one key-value head.
struct Chunk {
  int64_t row, kv, first, last;
};

// out = sums / sum, and lse, of one pair.
template <class T>
void write_pair(const AttentionForward& op, const AttentionSizes& sizes, const float* sums, float top, float sum, int64_t row,
                int64_t kv, int64_t pair) {
  unpack_row(sums, op.out.as<T>() + sizes.pair_at(row, kv, pair), sizes, 1 / sum);
  op.lse.as<float>()[sizes.lse_at(row, kv, pair)] = top + std::log(sum);
}

template <class T>
void attend(const AttentionForward& op, const AttentionSizes& sizes, const Chunk& chunk, float* memory) {
  const Scratch at(sizes);
  const int64_t d = sizes.padded;
  float *const k = memory + at.k, *const v = memory + at.v, *const scores = memory + at.scores, *const out = memory + at.out;

  int64_t begin = sizes.keys, end = 0;
  for (int64_t first = chunk.first; first < chunk.last; first += kColumns) {
    const Panel panel(op, sizes, chunk.row, first);
    begin = std::min(begin, panel.begin), end = std::max(end, panel.end);
  }
  pack_keys(op.k.as<T>(), k, sizes, chunk.row, chunk.kv, begin, end);
  pack_keys(op.v.as<T>(), v, sizes, chunk.row, chunk.kv, begin, end);

  for (int64_t first = chunk.first; first < chunk.last; first += kColumns) {
    const Panel panel(op, sizes, chunk.row, first);
    pack_pairs(op.q.as<T>(), memory + at.rows, memory + at.columns, sizes, chunk.row, chunk.kv, panel, op.scale);
    std::fill_n(out, kColumns * d, 0.0f);
    Running softmax;
    for (int64_t key = panel.begin; key < panel.end; key += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, panel.end - key), tile = (key - begin) * d;
      multiply<Walk::rows, Start::zero>({.c = scores,
                                         .ldc = kColumns,
                                         .a = k + tile,
                                         .lda = d,
                                         .b = memory + at.columns,
                                         .ldb = kColumns,
                                         .m = round_up(keys, kRows),
                                         .n = kColumns,
                                         .k = sizes.head_size});
      panel.mask(scores, key, keys);
      softmax.add(scores, keys);
      multiply<Walk::columns, Start::scaled>({.c = out,
                                              .ldc = d,
                                              .a = scores,
                                              .lda = kColumns,
                                              .b = v + tile,
                                              .ldb = d,
                                              .m = round_up(panel.count, kRows),
                                              .n = d,
                                              .k = keys,
                                              .scale = softmax.factor});
    }
    for (int64_t c = 0; c < panel.count; ++c)
      write_pair<T>(op, sizes, out + c * d, softmax.top[c], softmax.sum[c], chunk.row, chunk.kv, first + c);
  }
}

template <class T>
void attend_panels(const Cpu& cpu, const AttentionForward& op, const AttentionSizes& sizes) {
  const int threads = omp_get_max_threads();
  const int64_t heads = sizes.rows * sizes.kv_heads, panels = (sizes.pairs() + kColumns - 1) / kColumns;
  // At least four chunks for each thread where there are as many panels; those at the end of a row see the most keys and come
  // first.
  const int64_t per_head = std::clamp<int64_t>((4 * threads + heads - 1) / heads, 1, panels);
  const int64_t stride = Scratch(sizes).floats();
  float* memory = reinterpret_cast<float*>(cpu.workspace->reserve(threads * stride * 4));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < heads * per_head; ++i) {
    const int64_t head = i % heads, part = per_head - 1 - i / heads;
    const Chunk chunk{.row = head / sizes.kv_heads,
                      .kv = head % sizes.kv_heads,
                      .first = panels * part / per_head * kColumns,
                      .last = std::min(panels * (part + 1) / per_head * kColumns, sizes.pairs())};
    attend<T>(op, sizes, chunk, memory + omp_get_thread_num() * stride);
  }
}

// One query at the end of many keys, as in generation: too little for a panel, so the keys are read where they lie.
template <class T>
void attend_last(const AttentionForward& op, const AttentionSizes& sizes, int64_t row, int64_t head, float* memory) {
  const int64_t kv = head / sizes.group, pair = head % sizes.group, size = sizes.head_size, step = sizes.kv_heads * size;
  const Panel panel(op, sizes, row, pair);
  const T* k = op.k.as<T>() + sizes.key_at(row, kv, panel.begin);
  const T* v = op.v.as<T>() + sizes.key_at(row, kv, panel.begin);
  float *const q = memory, *const out = memory + sizes.padded;
  pack_row(op.q.as<T>() + sizes.pair_at(row, kv, pair), q, sizes, op.scale);
  std::fill_n(out, size, 0.0f);
  float top = kNothing, sum = 0, scores[kTileKeys];
  for (int64_t left = panel.end - panel.begin; left > 0; left -= kTileKeys) {
    const int64_t keys = std::min(kTileKeys, left);
    float high = top;
    for (int64_t j = 0; j < keys; ++j, k += step) {
      float score = 0;
#pragma omp simd reduction(+ : score)
      for (int64_t d = 0; d < size; ++d) score += q[d] * to_float(k[d]);
      scores[j] = score;
      high = std::max(high, score);
    }
    const float factor = fast_exp(top - high);
    top = high;
    sum *= factor;
    for (int64_t d = 0; d < size; ++d) out[d] *= factor;
    for (int64_t j = 0; j < keys; ++j, v += step) {
      const float p = fast_exp(scores[j] - top);
      sum += p;
#pragma omp simd
      for (int64_t d = 0; d < size; ++d) out[d] += p * to_float(v[d]);
    }
  }
  write_pair<T>(op, sizes, out, top, sum, row, kv, pair);
}

template <class T>
void attend_last(const Cpu& cpu, const AttentionForward& op, const AttentionSizes& sizes) {
  const int threads = omp_get_max_threads();
  float* memory = reinterpret_cast<float*>(cpu.workspace->reserve(threads * 2 * sizes.padded * 4));
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < sizes.rows * sizes.heads; ++i)
    attend_last<T>(op, sizes, i / sizes.heads, i % sizes.heads, memory + omp_get_thread_num() * 2 * sizes.padded);
}

}  // namespace

void launch(const Cpu& cpu, const AttentionForward& op) {
  check_documents(op);
  const AttentionSizes sizes(op);
  if (op.out.size() == 0) return;
  with_dtype(op.q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    sizes.queries == 1 ? attend_last<T>(cpu, op, sizes) : attend_panels<T>(cpu, op, sizes);
  });
}

}  // namespace trireme
