#include "model/stage_units.h"

#include <algorithm>
#include <utility>

namespace trireme {

void StageWeights::declare(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config,
                           const TensorParallel& tensor) {
  const WeightVisitor visit_some = [&](Tensor& t, const WeightSpec& spec) {
    if (unit.has(spec)) visit(t, spec);
  };
  declare_kind(unit, visit_some, config, tensor);
}

void StageWeights::declare_kind(const UnitId& unit, const WeightVisitor& visit, const ModelConfig& config,
                                const TensorParallel& tensor) {
  switch (unit.kind) {
    case UnitKind::table:
      return embedding.declare_tables(visit, "embedding", config, tensor);
    case UnitKind::positions:
      return embedding.declare_positions(visit, "embedding", config, tensor);
    case UnitKind::block:
      return unit.for_blocks([&](int64_t layer, size_t block, const Halves& halves) {
        blocks.resize(std::max(blocks.size(), block + 1));
        blocks[block].declare(visit, "layers." + std::to_string(layer), config, tensor, halves);
      });
    case UnitKind::tied_copy: {
      EmbeddingWeights copy;
      copy.declare_tables(visit, "embedding", config, tensor);
      head.classifiers = copy.tables;
      return;
    }
    case UnitKind::head: {
      const std::vector<Tensor> tables = head.classifiers.empty() ? embedding.tables : head.classifiers;
      head.declare(visit, "head", config, tensor);
      if (config.tied) head.classifiers = tables;
    }
  }
}

namespace {

int64_t elements_of(const UnitId& unit, const ModelConfig& config, const TensorParallel& tensor) {
  int64_t end = 0;
  StageWeights none;
  none.declare(
      unit, [&](Tensor&, const WeightSpec& spec) { end = round_up_unit(end + spec.size()); }, config, tensor);
  return end;
}

// Half-layers of each unit of blocks of a piece: one, or as many as make it shape.unit_size, if weights or gradients are
// gathered in memory that units share. Else it is a layer. So it is with recomputation of whole layers, which needs both halves
// at once, and with trees of sums, whose messages are many already.
std::vector<std::pair<int64_t, int64_t>> cut(const ModelConfig& config, const StageShape& shape, const ModelChunk& chunk) {
  const bool gathered = !shape.holding.weights || !shape.holding.gradients;
  TensorParallel shards = shape.tensor;
  shards.first = 0;  // the first rank's weights, so that all ranks of a tp group have the same units
  const bool halves = gathered && shape.recompute != Recompute::full && shape.holding.tree_levels == 0;
  std::vector<std::pair<int64_t, int64_t>> units;
  for (int64_t begin = chunk.begin, end = begin; begin < chunk.end; begin = end) {
    const auto small = [&] {
      return gathered &&
             elements_of({.kind = UnitKind::block, .begin = begin, .end = end}, config, shards) * bytes_of(shape.dtype) <
                 shape.unit_size;
    };
    do end = std::min(chunk.end, halves ? end + 1 : (end / 2 + 1) * 2);
    while (end < chunk.end && small());
    units.emplace_back(begin, end);
  }
  return units;
}

// The units of a stage's pieces. A tied head reads the table here, or has a tied copy.
std::vector<UnitId> whole_units(const ModelConfig& config, const StageShape& shape, bool tied_copy) {
  std::vector<UnitId> units;
  size_t block = 0, number = 0;
  for (const ModelChunk& chunk : shape.chunks) {
    if (chunk.first) units.push_back({.kind = UnitKind::table});
    if (chunk.first && config.family == Family::gpt2 && shape.tensor.first == 0) units.push_back({.kind = UnitKind::positions});
    // Attentions share one memory and MLPs the other, as far as units are half-layers.
    if (number % 2 != static_cast<size_t>(chunk.begin % 2)) ++number;
    for (const auto& [begin, end] : cut(config, shape, chunk))
      units.push_back({.kind = UnitKind::block,
                       .begin = begin,
                       .end = end,
                       .block = block + static_cast<size_t>(begin / 2 - chunk.first_layer()),
                       .number = number++});
    block += static_cast<size_t>(chunk.blocks());
    if (chunk.last && tied_copy) units.push_back({.kind = UnitKind::tied_copy});
    if (chunk.last) units.push_back({.kind = UnitKind::head});
  }
  return units;
}

}  // namespace

std::vector<UnitId> units_of(const ModelConfig& config, const StageShape& shape, bool tied_copy) {
  std::vector<UnitId> units;
  for (const UnitId& whole : whole_units(config, shape, tied_copy)) {
    const bool mixed = whole.kind == UnitKind::block || whole.kind == UnitKind::head;
    if (shape.dtype == Dtype::f32 || !mixed) {
      units.push_back(whole);
      continue;
    }
    for (const UnitDims dims : {UnitDims::matrices, UnitDims::vectors}) {
      if (dims == UnitDims::matrices && whole.kind == UnitKind::head && config.tied) continue;  // it has none
      units.push_back(whole);
      units.back().dims = dims;
    }
  }
  return units;
}

void declare_whole(StageWeights& weights, const ModelConfig& config,
                   const std::function<void(UnitKind, Tensor&, const WeightSpec&)>& visit) {
  const StageShape whole{
      .rows = 1, .context = config.context, .dtype = Dtype::f32, .chunks = chunks_of_stage({2 * config.layers}, {}, 0)};
  for (const UnitId& unit : units_of(config, whole, false))
    weights.declare(
        unit, [&](Tensor& t, const WeightSpec& spec) { visit(unit.kind, t, spec); }, config, whole.tensor);
}

int64_t size_of(const UnitId& unit, const ModelConfig& config, const StageShape& shape) {
  return round_up_unit(elements_of(unit, config, shape.tensor), kUnitAlign * shape.holding.parts);
}

}  // namespace trireme
