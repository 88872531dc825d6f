// Layers dealt to pipeline stages: compared with every way of dealing few of them.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "model/model_chunk.h"
#include "test/catch.h"

using namespace trireme;

namespace {

constexpr double kHeads[] = {0, 0.4, 1, 2.04, 4.83, 20};

// Calls f for each way to give `count` places at least `least` of `layers`.
void for_each_deal(int64_t layers, int64_t count, int64_t least, const std::function<void(const std::vector<int64_t>&)>& f,
                   std::vector<int64_t> so_far = {}) {
  if (count == 1) {
    so_far.push_back(layers);
    return f(so_far);
  }
  for (int64_t n = least; n <= layers - least * (count - 1); ++n) {
    so_far.push_back(n);
    for_each_deal(layers - n, count - 1, least, f, so_far);
    so_far.pop_back();
  }
}

double slowest(const std::vector<int64_t>& layers, double head) {
  double most = static_cast<double>(layers.back()) + head;
  for (const int64_t n : layers) most = std::max(most, static_cast<double>(n));
  return most;
}

std::vector<int64_t> of_stages(const std::vector<int64_t>& pieces, int64_t stages) {
  std::vector<int64_t> sums(static_cast<size_t>(stages));
  for (size_t i = 0; i < pieces.size(); ++i) sums[i % sums.size()] += pieces[i];
  return sums;
}

}  // namespace

TEST_CASE("no way to deal layers to stages has a faster slowest stage") {
  for (const double head : kHeads)
    for (int64_t stages = 1; stages <= 4; ++stages)
      for (int64_t chunks = 1; chunks <= 3; ++chunks)
        for (int64_t layers = stages * chunks; layers <= 14; ++layers) {
          const std::vector<int64_t> dealt = deal_layers({.layers = layers, .head = head}, stages, chunks);
          INFO(layers << " layers, " << stages << " stages of " << chunks << ", head " << head);
          REQUIRE(std::ssize(dealt) == stages * chunks);
          REQUIRE(std::accumulate(dealt.begin(), dealt.end(), int64_t{0}) == layers);
          REQUIRE(std::ranges::min(dealt) >= 1);
          double best = 1e9;
          for_each_deal(layers, stages, chunks, [&](const auto& way) { best = std::min(best, slowest(way, head)); });
          REQUIRE(slowest(of_stages(dealt, stages), head) == best);
        }
}

TEST_CASE("layers that do not divide evenly go to later stages, and fewer to the head's") {
  using Layers = std::vector<int64_t>;
  CHECK(deal_layers({.layers = 32, .head = 2.04}, 4, 1) == Layers{8, 9, 9, 6});  // Llama 3 8B
  CHECK(deal_layers({.layers = 12, .head = 4.83}, 2, 1) == Layers{8, 4});        // GPT-2 124M
  CHECK(deal_layers({.layers = 12, .head = 4.83}, 2, 2) == Layers{4, 3, 4, 1});
  CHECK(deal_layers({.layers = 126, .head = 0.66}, 16, 1).back() == 7);
  CHECK(deal_layers({.layers = 3, .head = 100}, 3, 1) == Layers{1, 1, 1});
  CHECK_THROWS_AS(deal_layers({.layers = 3}, 2, 2), Error);
}

TEST_CASE("the chunks of all stages are the model, each layer once") {
  for (int64_t stages = 1; stages <= 3; ++stages)
    for (int64_t chunks = 1; chunks <= 3; ++chunks) {
      const std::vector<int64_t> layers = deal_layers({.layers = 13, .head = 1.5}, stages, chunks);
      std::vector<ModelChunk> all(layers.size());
      for (int64_t stage = 0; stage < stages; ++stage) {
        const std::vector<ModelChunk> mine = chunks_of_stage(layers, stages, stage);
        REQUIRE(std::ssize(mine) == chunks);
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          all[static_cast<size_t>(chunk * stages + stage)] = mine[static_cast<size_t>(chunk)];
      }
      int64_t next = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i].begin == std::exchange(next, all[i].end));
        CHECK((all[i].first == (i == 0) && all[i].last == (i + 1 == all.size())));
      }
      CHECK(next == 13);
    }
}
