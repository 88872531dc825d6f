#include "kernels/ops/embedding.h"

#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/embedding.h"

using namespace trireme;

namespace {

struct Shape {
  int64_t rows, vocab, positions, cols;
};
const std::vector<Shape> kShapes{{1, 1, 1, 1}, {3, 17, 5, 63}, {100, 7, 64, 257}, {257, 300, 100, 129}, {2048, 50, 63, 65}};

Doubles sum(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace

TEST_CASE("an embedding is a row of its table, to the bit") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const Shape& s : kShapes) {
    const HostTensor table = random_tensor(dtype, {s.vocab, s.cols}, 1), tokens = random_integers({s.rows}, 2, 0, s.vocab);
    HostTensor x(stream, {s.rows, s.cols});
    run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = table});
    REQUIRE(x.values() == reference::embedding(integers(tokens), table.values(), s.cols));
  }
}

TEST_CASE("an embedding with positions is the sum of two rows, rounded once") {
  Device device(tested_place());
  // Dtypes of the stream, and of the step.
  const auto& [stream, dtype] =
      GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::f32, Dtype::bf16}}));
  for (const Shape& s : kShapes) {
    const HostTensor table = random_tensor(dtype, {s.vocab, s.cols}, 1), tokens = random_integers({s.rows}, 2, 0, s.vocab);
    const HostTensor places = random_tensor(dtype, {s.positions, s.cols}, 3), at = random_integers({s.rows}, 4, 0, s.positions);
    HostTensor x(stream, {s.rows, s.cols}), again(stream, {s.rows, s.cols});
    const auto forward = [&](const HostTensor& into) {
      run(device.compute(),
          EmbeddingForward{.x = into, .tokens = tokens, .table = table, .positions = at, .position_table = places});
    };
    forward(x), forward(again);
    const Doubles wanted = sum(reference::embedding(integers(tokens), table.values(), s.cols),
                               reference::embedding(integers(at), places.values(), s.cols));
    REQUIRE(close(x, wanted, 1.01 * rounding(stream)));
    REQUIRE(x == again);
  }
}

TEST_CASE("the embedding's backward adds to both tables, the same bits with 1, 2 and 3 threads") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const Shape& s : kShapes) {
    const HostTensor dx = random_tensor(dtype, {s.rows, s.cols}, 5);
    const HostTensor tokens = random_integers({s.rows}, 2, 0, s.vocab), at = random_integers({s.rows}, 4, 0, s.positions);
    const HostTensor before = random_tensor(Dtype::f32, {s.vocab, s.cols}, 6),
                     before_at = random_tensor(Dtype::f32, {s.positions, s.cols}, 7);
    std::vector<HostTensor> dtable(3, before), dplaces(3, before_at);
    for (const size_t i : {0, 1, 2}) {
      const Threads threads(static_cast<int>(i + 1));
      run(device.compute(),
          EmbeddingBackward{.dtable = dtable[i], .dposition_table = dplaces[i], .dx = dx, .tokens = tokens, .positions = at});
    }
    const auto wanted = [&](const HostTensor& start, const HostTensor& index, int64_t rows) {
      return sum(start.values(), reference::embedding_backward(dx.values(), integers(index), rows, s.cols));
    };
    REQUIRE(close(dtable[0], wanted(before, tokens, s.vocab), 1e-6));
    REQUIRE(close(dplaces[0], wanted(before_at, at, s.positions), 1e-6));
    REQUIRE((dtable[0] == dtable[1] && dtable[0] == dtable[2]));
    REQUIRE((dplaces[0] == dplaces[1] && dplaces[0] == dplaces[2]));

    HostTensor alone = before;
    run(device.compute(), EmbeddingBackward{.dtable = alone, .dx = dx, .tokens = tokens});
    REQUIRE(alone == dtable[0]);
  }
}

TEST_CASE("the embedding's reference backward agrees with finite differences") {
  const std::vector<int64_t> index{2, 0, 2, 4, 2};
  const Doubles table = random_doubles(5 * 3, 8), dx = random_doubles(5 * 3, 9);
  const auto loss = [&](const Doubles& at) { return dot(reference::embedding(index, at, 3), dx); };
  CHECK(close(reference::embedding_backward(dx, index, 5, 3), finite_differences(loss, table), 1e-8));
}

TEST_CASE("a token or position outside its table is an error that names it", "[cpu]") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {3, 2}), table(Dtype::f32, {4, 2}), good(Dtype::i32, {3}, {0, 1, 3});
  for (const double bad : {4.0, -1.0}) {
    HostTensor tokens(Dtype::i32, {3}, {0, bad, 3});
    CHECK_THROWS_WITH(run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = table}),
                      ContainsSubstring("tokens[1]") && ContainsSubstring("4 rows"));
    CHECK_THROWS_WITH(run(device.compute(),
                          EmbeddingForward{.x = x, .tokens = good, .table = table, .positions = tokens, .position_table = table}),
                      ContainsSubstring("positions[1]"));
    CHECK_THROWS_AS(run(device.compute(), EmbeddingBackward{.dtable = table, .dx = x, .tokens = tokens}), Error);
  }
}

TEST_CASE("the embedding refuses shapes that do not fit and counts its bytes on place none") {
  Device device(tested_place()), none(Place::none);
  HostTensor x(Dtype::f32, {3, 2}), table(Dtype::f32, {4, 2}), tokens(Dtype::i32, {3}), four(Dtype::i32, {4});
  CHECK_THROWS_AS(run(device.compute(), EmbeddingForward{.x = x, .tokens = four, .table = table}), Error);
  CHECK_THROWS_AS(run(device.compute(), EmbeddingForward{.x = x, .tokens = table, .table = table}), Error);
  CHECK_THROWS_AS(run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = table, .position_table = table}),
                  Error);
  CHECK_THROWS_AS(run(device.compute(), EmbeddingBackward{.dtable = x, .dx = table, .tokens = tokens}), Error);
  const Tensor ids = imagined(Dtype::i32, {5}), wide = imagined(Dtype::bf16, {5, 8});
  run(none.compute(), EmbeddingForward{.x = wide, .tokens = ids, .table = imagined(Dtype::bf16, {10, 8})});
  run(none.compute(), EmbeddingBackward{.dtable = imagined(Dtype::f32, {10, 8}), .dx = wide, .tokens = ids});
  CHECK(none.tally().at("embedding").bytes == 80 + 20 + 160);
  CHECK(none.tally().at("embedding_backward").bytes == 2 * 320 + 80 + 20);
}

TEST_CASE("an embedding in shards of the vocabulary is that of the whole table, and each shard's gradient is its rows") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t shards : {2, 3, 8}) {
    constexpr int64_t kRows = 100, kVocab = 61, kCols = 33, kPositions = 20;
    const int64_t rows = (kVocab + shards - 1) / shards;
    const HostTensor whole = random_tensor(dtype, {rows * shards, kCols}, 1), tokens = random_integers({kRows}, 2, 0, kVocab);
    const HostTensor places = random_tensor(dtype, {kPositions, kCols}, 3), at = random_integers({kRows}, 4, 0, kPositions);
    const HostTensor dx = random_tensor(dtype, {kRows, kCols}, 5);
    HostTensor x(dtype, {kRows, kCols}), apart(dtype, {kRows, kCols}), joined(dtype, {kRows, kCols}), none(dtype, {kRows, kCols});
    HostTensor dwhole(Dtype::f32, {rows * shards, kCols}), dplaces(Dtype::f32, {kPositions, kCols}), dshards = dwhole;
    run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = whole, .positions = at, .position_table = places});
    run(device.compute(),
        EmbeddingBackward{.dtable = dwhole, .dposition_table = dplaces, .dx = dx, .tokens = tokens, .positions = at});
    for (int64_t s = 0; s < shards; ++s) {
      const auto part = [&](const HostTensor& t) { return t.tensor().slice(s * rows, (s + 1) * rows); };
      const Tensor positions = s == 0 ? at.tensor() : Tensor(), table = s == 0 ? places.tensor() : Tensor();
      EmbeddingForward forward{.x = joined,
                               .tokens = tokens,
                               .table = part(whole),
                               .positions = positions,
                               .position_table = table,
                               .shard = true,
                               .first = s * rows,
                               .join = false};
      forward.x = none;
      run(device.compute(), forward);
      run(device.compute(), Add{.y = apart, .a = apart, .b = none});
      if (s == 0) continue;
      run(device.compute(),
          EmbeddingBackward{.dtable = part(dshards), .dx = dx, .tokens = tokens, .shard = true, .first = s * rows});
    }
    run(device.compute(), EmbeddingBackward{.dtable = dshards.tensor().slice(0, rows), .dx = dx, .tokens = tokens, .shard = true});
    CHECK(apart == x);
    CHECK(dshards == dwhole);

    // Writes the shards one after the other to the same memory: only the rows of a shard's tokens
    // are written.
    for (int64_t s = 0; s < shards; ++s)
      run(device.compute(), EmbeddingForward{.x = joined,
                                             .tokens = tokens,
                                             .table = whole.tensor().slice(s * rows, (s + 1) * rows),
                                             .shard = true,
                                             .first = s * rows,
                                             .join = s > 0});
    run(device.compute(), EmbeddingForward{.x = x, .tokens = tokens, .table = whole});
    CHECK(joined == x);
  }
}
