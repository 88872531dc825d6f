#include "train/optimizer.h"

#include <cmath>

#include "kernels/ops/adamw.h"
#include "kernels/ops/fill.h"
#include "kernels/philox.h"

namespace trireme {

Optimizer::Optimizer(const TrainConfig& config, const Stage& stage, Buckets& buckets, Arenas& arenas)
    : config_(config), buckets_(buckets), units_(stage.units()) {
  for (const Unit& unit : units_) {
    const Tensor weight = buckets.mine(unit.weights);
    const auto take = [&] { return arenas.optimizer.take(Dtype::f32, {weight.size()}); };
    states_.push_back({.weight = weight,
                       .gradient = buckets.mine(unit.gradients),
                       .master = weight.dtype() == Dtype::f32 ? weight : take(),
                       .m = take(),
                       .v = take()});
  }
  for (const Parameter& parameter : stage.parameters()) {
    const int64_t part = states_[parameter.unit].weight.size();
    const int64_t begin = buckets.part() * part, end = begin + part;  // of the part, in the unit
    const int64_t first = std::max(begin, parameter.begin), last = std::min(end, parameter.begin + parameter.spec.size());
    if (first < last)
      segments_.push_back({.parameter = &parameter, .first = first - parameter.begin, .at = first - begin, .count = last - first});
  }
  arrived_.resize(units_.size());
  squared_norm_ = arenas.optimizer.take(Dtype::f32, {1});
}

template <class Then>
void Optimizer::for_each_piece(Then then) const {
  for (const Segment& s : segments_) {
    const WeightSpec& spec = s.parameter->spec;
    const int64_t cols = spec.shape.size() == 2 ? spec.shape[1] : 1;
    const std::vector<WeightPiece> whole{{.name = "", .rows = spec.shape[0]}};
    int64_t begin = 0;  // of the piece, in the parameter
    for (const WeightPiece& piece : spec.pieces.empty() ? whole : spec.pieces) {
      const int64_t end = begin + piece.rows * cols, first = std::max(begin, s.first), last = std::min(end, s.first + s.count);
      std::vector<int64_t> shape = spec.shape;
      shape[0] = piece.rows;
      if (first < last) then(s, spec.name + piece.name, shape, first - begin, s.at + first - s.first, s.at + last - s.first);
      begin = end;
    }
  }
}

void Optimizer::initialise(Stream& stream, double init_std, int64_t layers) {
  const auto deviation = [&](Init init) {
    if (init == Init::residual) return init_std / std::sqrt(2.0 * static_cast<double>(layers));
    return init == Init::position ? init_std / 2 : init_std;
  };
  for (const State& state : states_)
    for (const Tensor& t : {state.master, state.m, state.v}) run(stream, Fill{.x = t});
  for_each_piece(
      [&](const Segment& s, const std::string& name, const std::vector<int64_t>&, int64_t first, int64_t begin, int64_t end) {
        const Tensor x = states_[s.parameter->unit].master.slice(begin, end);
        const Init init = s.parameter->spec.init;
        if (init == Init::one) run(stream, Fill{.x = x, .value = 1});
        if (init == Init::zero || init == Init::one) return;
        run(stream, FillNormal{.x = x,
                               .stddev = static_cast<float>(deviation(init)),
                               .key = stream_key(static_cast<uint64_t>(config_.seed), name),
                               .first = first});
      });
  refresh(stream);
}

void Optimizer::refresh(Stream& stream) {
  for (const State& state : states_)
    if (state.weight.dtype() != Dtype::f32) run(stream, Cast{.y = state.weight, .x = state.master});
  for (const Unit& unit : units_) run(stream, Fill{.x = unit.gradients});
  spread(stream);
}

void Optimizer::update(Stream& stream, double lr, int64_t step) {
  run(stream, Fill{.x = squared_norm_});
  for (const State& state : states_) run(stream, SquaredNorm{.total = squared_norm_, .x = state.gradient});
  buckets_.sum_parts(stream, squared_norm_);
  for (const Segment& s : segments_) {
    const State& state = states_[s.parameter->unit];
    const auto part = [&](const Tensor& t) { return t.slice(s.at, s.at + s.count); };
    run(stream, AdamW{.weight = state.weight.dtype() == Dtype::f32 ? Tensor{} : part(state.weight),
                      .master = part(state.master),
                      .m = part(state.m),
                      .v = part(state.v),
                      .grad = part(state.gradient),
                      .squared_norm = squared_norm_,
                      .lr = static_cast<float>(lr),
                      .beta1 = static_cast<float>(config_.beta1),
                      .beta2 = static_cast<float>(config_.beta2),
                      .eps = static_cast<float>(config_.eps),
                      .decay = s.parameter->spec.decays() ? static_cast<float>(config_.decay) : 0.0f,
                      .clip = static_cast<float>(config_.clip),
                      .step = step});
  }
  if (buckets_.parts() > 1)  // AdamW has zeroed its own part
    for (const Unit& unit : units_) run(stream, Fill{.x = unit.gradients});
  spread(stream);
}

// Every replica's part of the weights to all others, in the order in which forward reads them.
void Optimizer::spread(Stream& stream) {
  for (size_t unit = 0; unit < units_.size(); ++unit) arrived_[unit] = buckets_.gather(stream, units_[unit].weights);
}

std::vector<NamedShard> Optimizer::shards() const {
  std::vector<NamedShard> shards;
  const auto list = [&](const std::string& prefix, Tensor State::*which) {
    for_each_piece([&](const Segment& s, const std::string& name, const std::vector<int64_t>& shape, int64_t first, int64_t begin,
                       int64_t end) {
      for (NamedShard& shard : flat_shards(prefix + name, shape, first, (states_[s.parameter->unit].*which).slice(begin, end)))
        shards.push_back(std::move(shard));
    });
  };
  list("", &State::master);
  list("adam_m/", &State::m);
  list("adam_v/", &State::v);
  return shards;
}

}  // namespace trireme
