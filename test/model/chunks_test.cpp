// Half-layers dealt to pipeline stages: compared with every way of dealing few of them.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/model_chunk.h"
#include "test/catch.h"

using namespace trireme;

namespace {

constexpr double kHeads[] = {0, 0.4, 1, 2.04, 4.83, 20};
using Counts = std::vector<int64_t>;

// Calls f for each way to give `places` at least one of `count`.
void for_each_deal(int64_t count, int64_t places, const std::function<void(const Counts&)>& f, Counts so_far = {}) {
  if (places == 1) {
    so_far.push_back(count);
    return f(so_far);
  }
  for (int64_t n = 1; n <= count - (places - 1); ++n) {
    so_far.push_back(n);
    for_each_deal(count - n, places - 1, f, so_far);
    so_far.pop_back();
  }
}

// Work of the slowest stage.
double slowest(const ModelWork& work, const Counts& pieces, const PipelineShape& shape) {
  std::vector<double> sums(static_cast<size_t>(shape.stages));
  sums[static_cast<size_t>(shape.stage_of(shape.pieces() - 1))] = work.head;
  int64_t at = 0;
  for (size_t piece = 0; piece < pieces.size(); ++piece)
    for (int64_t i = 0; i < pieces[piece]; ++i) {
      const int64_t stage = shape.stage_of(static_cast<int64_t>(piece));
      sums[static_cast<size_t>(stage)] += work.of(at++, stage);
    }
  return std::ranges::max(sums);
}

// The same of the best way to deal whole layers.
double slowest_of_whole(const ModelWork& work, int64_t stages, int64_t chunks) {
  double best = 1e9;
  for_each_deal(work.layers, stages, [&](const Counts& way) {
    if (std::ranges::min(way) < chunks) return;
    double most = static_cast<double>(way.back()) + work.head;
    for (const int64_t n : way) most = std::max(most, static_cast<double>(n));
    best = std::min(best, most);
  });
  return best;
}

PipelineShape shape_of(int64_t stages, int64_t chunks, bool turns = false) {
  return {.stages = stages, .chunks = chunks, .turns = turns};
}

}  // namespace

TEST_CASE("no way to deal half-layers to stages in a row has a faster slowest stage") {
  for (const double head : kHeads)
    for (const double attention : {0.3, 0.5, 0.62})
      for (int64_t stages = 1; stages <= 4; ++stages)
        for (int64_t layers = (stages + 1) / 2; layers <= 8; ++layers) {
          const ModelWork work{.layers = layers,
                               .head = head,
                               .attention = attention,
                               .attention_again = 0.1,
                               .mlp_again = 0.25,
                               .recomputing = layers % (stages + 1)};
          const Counts dealt = deal_half_layers(work, shape_of(stages, 1));
          INFO(layers << " layers, " << stages << " stages, head " << head << ", attention " << attention);
          REQUIRE(std::ssize(dealt) == stages);
          REQUIRE(std::accumulate(dealt.begin(), dealt.end(), int64_t{0}) == 2 * layers);
          REQUIRE(std::ranges::min(dealt) >= 1);
          double best = 1e9;
          for_each_deal(2 * layers, stages,
                        [&](const Counts& way) { best = std::min(best, slowest(work, way, shape_of(stages, 1))); });
          REQUIRE(slowest(work, dealt, shape_of(stages, 1)) < best + 1e-6);
        }
}

TEST_CASE("half-layers in turn are never slower than whole layers, and nearly even") {
  for (const double head : kHeads)
    for (const double attention : {0.3, 0.5, 0.62})
      for (int64_t stages = 2; stages <= 4; ++stages)
        for (int64_t chunks = 2; chunks <= 4; ++chunks)
          for (int64_t more = 0; more < 29 - stages * chunks; ++more) {
            const bool turns = chunks == 2 && more % 2 == 1;
            const int64_t layers = (stages * chunks + 1 + more) / 2;
            const ModelWork work{.layers = layers, .head = head, .attention = attention};
            const PipelineShape shape = shape_of(stages, chunks, turns);
            const Counts dealt = deal_half_layers(work, shape);
            INFO(layers << " layers, " << stages << " stages of " << chunks << ", head " << head << ", attention " << attention
                        << (turns ? ", turned" : ""));
            REQUIRE(std::ssize(dealt) == stages * chunks);
            REQUIRE(std::accumulate(dealt.begin(), dealt.end(), int64_t{0}) == 2 * layers);
            REQUIRE(std::all_of(dealt.begin() + 1, dealt.end() - 1, [](int64_t n) { return n >= 1; }));
            if (layers >= stages * chunks) REQUIRE(std::ranges::min(dealt) >= 1);
            if (layers >= stages * chunks) REQUIRE(slowest(work, dealt, shape) < slowest_of_whole(work, stages, chunks) + 1e-6);
          }
}

TEST_CASE("models as published are dealt evenly") {
  const auto balance = [](const ModelWork& work, int64_t stages, int64_t chunks, bool turns = false) {
    const double mean = (static_cast<double>(work.layers) + work.head) / static_cast<double>(stages);
    const PipelineShape shape = shape_of(stages, chunks, turns);
    return mean / slowest(work, deal_half_layers(work, shape), shape);
  };
  const ModelWork llama8{.layers = 32, .head = 2.04, .attention = 0.3}, gpt2{.layers = 12, .head = 4.83, .attention = 0.4};
  CHECK(balance(llama8, 4, 1) > 0.97);
  CHECK(balance(llama8, 4, 2) > 0.97);
  CHECK(balance(llama8, 4, 2, true) > 0.97);
  CHECK(balance(gpt2, 2, 1) > 0.97);
  CHECK(balance({.layers = 126, .head = 0.66, .attention = 0.2}, 16, 8) > 0.95);
  CHECK(deal_half_layers({.layers = 3, .head = 100}, shape_of(3, 1)) == Counts{2, 3, 1});  // the rest is even, too
  CHECK(deal_half_layers({.layers = 4}, shape_of(2, 2)) == Counts{2, 2, 2, 2});
  CHECK_THROWS_AS(deal_half_layers({.layers = 3}, shape_of(7, 1)), Error);
}

TEST_CASE("the chunks of all stages are the model, each half-layer once") {
  for (int64_t stages = 1; stages <= 3; ++stages)
    for (int64_t way = 1; way <= 4; ++way) {
      const int64_t chunks = way == 4 ? 2 : way;
      if (stages == 1 && chunks > 1) continue;
      const PipelineShape shape = shape_of(stages, chunks, way == 4);
      const Counts counts = deal_half_layers({.layers = 13, .head = 1.5}, shape);
      std::vector<ModelChunk> all(counts.size());
      for (int64_t stage = 0; stage < stages; ++stage) {
        const std::vector<ModelChunk> mine = chunks_of_stage(counts, shape, stage);
        REQUIRE(std::ssize(mine) == chunks);
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          all[static_cast<size_t>(shape.piece_of(stage, chunk))] = mine[static_cast<size_t>(chunk)];
      }
      int64_t next = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i].begin == std::exchange(next, all[i].end));
        CHECK((all[i].first == (i == 0) && all[i].last == (i + 1 == all.size())));
      }
      CHECK(next == 26);
    }
}

TEST_CASE("a chunk counts the layers that it has a half of") {
  const auto blocks = [](int64_t begin, int64_t end) {
    return ModelChunk{.begin = begin, .end = end, .first = false, .last = false}.blocks();
  };
  CHECK((blocks(0, 0) == 0 && blocks(3, 3) == 0 && blocks(0, 1) == 1 && blocks(1, 2) == 1 && blocks(0, 2) == 1));
  CHECK((blocks(1, 3) == 2 && blocks(1, 4) == 2 && blocks(2, 5) == 2 && blocks(3, 8) == 3));
}
