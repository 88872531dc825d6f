#include "model/model_chunk.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "kernels/ops/attention.h"

namespace trireme {

namespace {

// Deals whole layers to `count` places in a row, at least `least` to each; the last has the head as well.
std::vector<int64_t> deal_layers(int64_t layers, double head, int64_t count, int64_t least) {
  if (count == 1) return {layers};
  const auto largest_other = [&](int64_t last) { return (layers - last + count - 2) / (count - 1); };
  double best = std::numeric_limits<double>::infinity();
  int64_t last = least;
  for (int64_t n = least; n <= layers - least * (count - 1); ++n) {
    const double slowest = std::max(static_cast<double>(largest_other(n)), static_cast<double>(n) + head);
    if (slowest <= best) best = slowest, last = n;
  }
  const int64_t others = layers - last, larger = others % (count - 1);
  std::vector<int64_t> dealt(static_cast<size_t>(count - 1), others / (count - 1));
  for (auto i = static_cast<size_t>(count - 1 - larger); i < dealt.size(); ++i) ++dealt[i];
  dealt.push_back(last);
  return dealt;
}

// The first `count` half-layers and then `head`, as work that some stages share, each in a row.
struct Row {
  const ModelWork& work;
  int64_t stages, count;
  double head;

  // Half-layers of the last stage if it takes as many as `most` allows; 0 if no stage may have more work than that.
  int64_t taken_by_last(double most) const {
    int64_t left = count, of_last = 0;
    for (int64_t stage = stages; stage-- > 0;) {
      int64_t mine = 0;
      double now = stage + 1 == stages ? head : 0;
      while (left > stage && (mine == 0 || now + work.of(left - 1, stage) <= most)) now += work.of(--left, stage), ++mine;
      if (now > most) return 0;
      if (stage + 1 == stages) of_last = mine;
    }
    return left == 0 ? of_last : 0;
  }
  // The same if the slowest stage is as fast as possible, which is found by halving.
  int64_t best_of_last() const {
    double least = 0, most = 2 * static_cast<double>(count) + head + 1;
    for (int i = 0; i < 60; ++i) {
      const double middle = (least + most) / 2;
      (taken_by_last(middle) == 0 ? least : most) = middle;
    }
    return taken_by_last(most * (1 + 1e-9));
  }
};

// The most even way with one chunk a stage; then the most even way of the stages before the last, and so on.
std::vector<int64_t> deal_in_a_row(const ModelWork& work, int64_t stages) {
  std::vector<int64_t> counts(static_cast<size_t>(stages));
  Row row{.work = work, .stages = stages, .count = 2 * work.layers, .head = work.head};
  for (; row.stages > 0; --row.stages, row.head = 0) {
    int64_t& mine = counts[static_cast<size_t>(row.stages - 1)];
    mine = row.best_of_last();
    row.count -= mine;
  }
  return counts;
}

// Whole layers of each chunk, dealt to stages and then to their chunks. If only the last or the first and the last would have none,
// so it is; with fewer layers half-layers, evenly.
std::vector<int64_t> deal_in_turn(const ModelWork& work, const PipelineShape& shape) {
  const int64_t stages = shape.stages, chunks = shape.chunks, count = shape.pieces();
  std::vector<int64_t> dealt(static_cast<size_t>(count), 2);
  if (work.layers < count) {
    dealt.back() = 0;
    if (work.layers == count - 1) return dealt;
    dealt.front() = 0;
    if (work.layers == count - 2) return dealt;
    for (int64_t i = 0; i < count; ++i)
      dealt[static_cast<size_t>(i)] = 2 * work.layers * (i + 1) / count - 2 * work.layers * i / count;
    return dealt;
  }
  const double of_head = work.head / (work.recomputing >= stages ? 1 + work.attention_again + work.mlp_again : 1);
  const std::vector<int64_t> of_stages = deal_layers(work.layers, of_head, stages, chunks);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const bool has_head = stage == shape.stage_of(count - 1);
    const int64_t place = shape.turns ? stages - 1 - stage : stage;  // the stage with the head is the last
    const std::vector<int64_t> of_chunks = deal_layers(of_stages[static_cast<size_t>(place)], has_head ? of_head : 0, chunks, 1);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      dealt[static_cast<size_t>(shape.piece_of(stage, chunk))] = 2 * of_chunks[static_cast<size_t>(chunk)];
  }
  return dealt;
}

// Moves single half-layers between neighbouring chunks while that makes the stages' work more even.
class Evening {
 public:
  Evening(const ModelWork& work, std::vector<int64_t> counts, const PipelineShape& shape)
      : work_(work), shape_(shape), counts_(std::move(counts)), of_stages_(static_cast<size_t>(shape.stages)) {
    of_stages_[static_cast<size_t>(stage(counts_.size() - 1))] = work.head;
    int64_t at = 0;
    for (size_t chunk = 0; chunk < counts_.size(); ++chunk)
      for (int64_t i = 0; i < counts_[chunk]; ++i) add(chunk, at++, 1);
  }

  // As it was if the slowest stage is as slow.
  std::vector<int64_t> result() {
    const std::vector<int64_t> before = counts_;
    const double slowest = std::ranges::max(of_stages_);
    for (bool moved = true; moved;) {
      moved = false;
      int64_t at = 0;  // the first half-layer of the later chunk
      for (size_t later = 1; later < counts_.size(); ++later) {
        at += counts_[later - 1];
        if (counts_[later] > 1 && gains(later, later - 1, at)) ++at, move(later, later - 1), moved = true;
        if (counts_[later - 1] > 1 && gains(later - 1, later, at - 1)) --at, move(later - 1, later), moved = true;
      }
    }
    return std::ranges::max(of_stages_) < slowest - 1e-3 ? counts_ : before;
  }

 private:
  int64_t stage(size_t chunk) const { return shape_.stage_of(static_cast<int64_t>(chunk)); }
  void add(size_t chunk, int64_t half_layer, double times) {
    of_stages_[static_cast<size_t>(stage(chunk))] += times * work_.of(half_layer, stage(chunk));
  }
  // Moves the work of a half-layer if the larger of both stages' becomes smaller.
  bool gains(size_t from, size_t to, int64_t half_layer) {
    const double now = of_stages_[static_cast<size_t>(stage(from))];
    if (of_stages_[static_cast<size_t>(stage(to))] + work_.of(half_layer, stage(to)) > now - 1e-9) return false;
    add(from, half_layer, -1), add(to, half_layer, 1);
    return true;
  }
  void move(size_t from, size_t to) { --counts_[from], ++counts_[to]; }

  const ModelWork& work_;
  const PipelineShape& shape_;
  std::vector<int64_t> counts_;
  std::vector<double> of_stages_;
};

}  // namespace

ModelWork work_of(const ModelConfig& config, Recompute recompute, int64_t recomputing) {
  const bool gpt2 = config.family == Family::gpt2;
  const auto width = static_cast<double>(config.width), ffn = static_cast<double>(config.ffn);
  const auto q = static_cast<double>(config.q_width()), kv = static_cast<double>(config.kv_width());
  const double in_attention = width * (2 * q + 2 * kv), in_mlp = (gpt2 ? 2 : 3) * width * ffn;
  const double pairs = attention_pairs(config.context, config.context, config.window) / static_cast<double>(config.context);
  // For each token: two FLOPs a parameter and a pair's element forward, in two products; twice that backward, where attention
  // has one product more.
  const double attention = 6 * in_attention + 14 * q * pairs, layer = attention + 6 * in_mlp;
  const bool again = recompute == Recompute::full;
  return {.layers = config.layers,
          .head = 6 * width * static_cast<double>(config.vocab) / layer,
          .attention = attention / layer,
          .attention_again = again ? (2 * in_attention + 4 * q * pairs) / layer : 0,
          .mlp_again = again ? 2 * in_mlp * (gpt2 ? 1.0 / 2 : 2.0 / 3) / layer : 0,  // without the product down
          .recomputing = recomputing};
}

std::vector<int64_t> deal_half_layers(const ModelWork& work, const PipelineShape& shape) {
  require(shape.stages >= 1 && shape.chunks >= 1 && 2 * work.layers >= shape.pieces(),
          text(work.layers, " layers for ", shape.stages, " stages of ", shape.chunks, " chunks"));
  if (shape.chunks == 1) return deal_in_a_row(work, shape.stages);
  return Evening(work, deal_in_turn(work, shape), shape).result();
}

std::vector<ModelChunk> chunks_of_stage(const std::vector<int64_t>& half_layers, const PipelineShape& shape, int64_t stage) {
  const auto count = std::ssize(half_layers);
  require(0 <= stage && stage < shape.stages && count == shape.pieces(),
          text(count, " pieces for stage ", stage, " of ", shape.stages));
  std::vector<ModelChunk> mine;
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const int64_t piece = shape.piece_of(stage, chunk);
    const int64_t begin = std::accumulate(half_layers.begin(), half_layers.begin() + piece, int64_t{0});
    mine.push_back(
        {.begin = begin, .end = begin + half_layers[static_cast<size_t>(piece)], .first = piece == 0, .last = piece + 1 == count});
  }
  return mine;
}

}  // namespace trireme
