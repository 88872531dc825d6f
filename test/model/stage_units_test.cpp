// Units into which the weights of a Stage are cut.
#include "model/stage_units.h"

#include "test/catch.h"

using namespace trireme;

namespace {

ModelConfig model_of(Family family) {
  ModelConfig m;
  m.family = family;
  m.layers = 6, m.width = 32, m.heads = 4, m.kv_heads = 4, m.head_size = 8, m.ffn = 96, m.vocab = 61, m.context = 16;
  return m;
}

StageShape shape_of(const ModelChunk& chunk, int64_t unit_size) {
  StageShape shape{.rows = 1, .context = 16, .dtype = Dtype::bf16};
  shape.holding = {.parts = 2, .weights = false, .gradients = false};
  shape.chunks = {chunk}, shape.unit_size = unit_size;
  return shape;
}

}  // namespace

TEST_CASE("all ranks of a tp group have the same units, of any size") {
  for (const Family family : {Family::gpt2, Family::llama})
    for (int64_t begin = 0; begin < 4; ++begin)
      for (int64_t unit_size = 0; unit_size < 100'000; unit_size += 97) {
        StageShape first = shape_of({.begin = begin, .end = 12, .first = begin == 0, .last = true}, unit_size), second = first;
        first.tensor.count = second.tensor.count = 2, second.tensor.first = 1;
        const auto blocks = [&](const StageShape& shape) {
          std::vector<std::pair<int64_t, int64_t>> list;
          for (const UnitId& unit : units_of(model_of(family), shape, false))
            if (unit.kind == UnitKind::block) list.emplace_back(unit.begin, unit.end);
          return list;
        };
        if (blocks(first) != blocks(second)) FAIL("unit_size " << unit_size << ", from half-layer " << begin);
        CHECK((blocks(first).front().first == begin && blocks(first).back().second == 12));
      }
}

TEST_CASE("units of half-layers share memory with their own kind, and neighbours never") {
  const ModelConfig model = model_of(Family::llama);
  StageShape shape = shape_of({.begin = 0, .end = 3, .first = true, .last = false}, 0);
  shape.chunks.push_back({.begin = 4, .end = 6, .first = false, .last = false});
  shape.chunks.push_back({.begin = 7, .end = 12, .first = false, .last = true});
  for (const UnitId& unit : units_of(model, shape, false))
    if (unit.kind == UnitKind::block) {
      CHECK(unit.end == unit.begin + 1);
      CHECK(unit.number % 2 == static_cast<size_t>(unit.begin % 2));
    }
}
