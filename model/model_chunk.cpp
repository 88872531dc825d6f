#include "model/model_chunk.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/ops/attention.h"

namespace trireme {

std::vector<int64_t> layers_of(const std::vector<ModelChunk>& chunks) {
  std::vector<int64_t> layers;
  for (const ModelChunk& chunk : chunks) layers.push_back(chunk.layers());
  return layers;
}
namespace {

// Deals layers to `count` places in a row, at least `least` to each; the last has the head as well.
std::vector<int64_t> deal(const ModelWork& work, int64_t count, int64_t least) {
  if (count == 1) return {work.layers};
  const auto largest_other = [&](int64_t last) { return (work.layers - last + count - 2) / (count - 1); };
  double best = std::numeric_limits<double>::infinity();
  int64_t last = least;
  for (int64_t n = least; n <= work.layers - least * (count - 1); ++n) {
    const double slowest = std::max(static_cast<double>(largest_other(n)), static_cast<double>(n) + work.head);
    if (slowest <= best) best = slowest, last = n;
  }
  const int64_t others = work.layers - last, larger = others % (count - 1);
  std::vector<int64_t> layers(static_cast<size_t>(count - 1), others / (count - 1));
  for (auto i = static_cast<size_t>(count - 1 - larger); i < layers.size(); ++i) ++layers[i];
  layers.push_back(last);
  return layers;
}

}  // namespace

ModelWork work_of(const ModelConfig& config, Recompute recompute) {
  const auto width = static_cast<double>(config.width), ffn = static_cast<double>(config.ffn);
  const auto q = static_cast<double>(config.q_width()), kv = static_cast<double>(config.kv_width());
  const double parameters = width * (2 * q + 2 * kv) + (config.family == Family::gpt2 ? 2 : 3) * width * ffn;
  const double pairs = attention_pairs(config.context, config.context, config.window) / static_cast<double>(config.context);
  // For each token: two FLOPs a parameter and a pair's element forward, in two products; twice that backward, where attention
  // has one product more.
  const double forward = 2 * parameters + 4 * q * pairs, backward = 4 * parameters + 10 * q * pairs;
  const double layer = forward + backward + (recompute == Recompute::full ? forward : 0);
  return {.layers = config.layers, .head = 6 * width * static_cast<double>(config.vocab) / layer};
}

std::vector<int64_t> deal_layers(const ModelWork& work, int64_t stages, int64_t chunks) {
  require(stages >= 1 && chunks >= 1 && work.layers >= stages * chunks,
          text(work.layers, " layers for ", stages, " stages of ", chunks, " chunks"));
  const std::vector<int64_t> of_stages = deal(work, stages, chunks);
  std::vector<int64_t> layers(static_cast<size_t>(stages * chunks));
  for (int64_t stage = 0; stage < stages; ++stage) {
    const ModelWork own{.layers = of_stages[static_cast<size_t>(stage)], .head = stage + 1 == stages ? work.head : 0};
    const std::vector<int64_t> of_chunks = deal(own, chunks, 1);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      layers[static_cast<size_t>(chunk * stages + stage)] = of_chunks[static_cast<size_t>(chunk)];
  }
  return layers;
}

std::vector<ModelChunk> chunks_of_stage(const std::vector<int64_t>& layers, int64_t stages, int64_t stage) {
  const auto count = std::ssize(layers);
  require(0 <= stage && stage < stages && count % stages == 0, text(count, " chunks for stage ", stage, " of ", stages));
  std::vector<ModelChunk> mine;
  for (int64_t chunk = stage; chunk < count; chunk += stages) {
    const int64_t begin = std::accumulate(layers.begin(), layers.begin() + chunk, int64_t{0});
    mine.push_back(
        {.begin = begin, .end = begin + layers[static_cast<size_t>(chunk)], .first = chunk == 0, .last = chunk + 1 == count});
  }
  return mine;
}

}  // namespace trireme
