#include "train/optimizer.h"

#include <cmath>

#include "kernels/ops/adamw.h"
#include "kernels/ops/fill.h"
#include "kernels/philox.h"

namespace trireme {
namespace {

Tensor take_like(Arena& arena, const WeightSpec& spec) {
  return spec.shape.size() == 1 ? arena.take(Dtype::f32, {spec.shape[0]}) : arena.take(Dtype::f32, {spec.shape[0], spec.shape[1]});
}

}  // namespace

Optimizer::Optimizer(const TrainConfig& config, const Stage& stage, Arenas& arenas)
    : config_(config), gradients_(arenas.gradients.flat(Dtype::f32)) {
  for (const Parameter& parameter : stage.parameters()) {
    const bool narrow = parameter.weight.dtype() != Dtype::f32;
    states_.push_back({.parameter = &parameter,
                       .master = narrow ? take_like(arenas.optimizer, parameter.spec) : parameter.weight,
                       .m = take_like(arenas.optimizer, parameter.spec),
                       .v = take_like(arenas.optimizer, parameter.spec)});
  }
  squared_norm_ = arenas.optimizer.take(Dtype::f32, {1});
}

void Optimizer::initialise(Stream& stream, double init_std, int64_t layers) {
  const auto spread = [&](Init init) {
    if (init == Init::residual) return init_std / std::sqrt(2.0 * static_cast<double>(layers));
    return init == Init::position ? init_std / 2 : init_std;
  };
  for (const State& state : states_) {
    const WeightSpec& spec = state.parameter->spec;
    for (const auto& [name, piece] : pieces_of(spec, state.master)) {
      if (spec.init == Init::zero || spec.init == Init::one)
        run(stream, Fill{.x = piece, .value = spec.init == Init::one ? 1.0f : 0.0f});
      else
        run(stream, FillNormal{.x = piece,
                               .stddev = static_cast<float>(spread(spec.init)),
                               .key = stream_key(static_cast<uint64_t>(config_.seed), name)});
    }
    run(stream, Fill{.x = state.m});
    run(stream, Fill{.x = state.v});
  }
  refresh(stream);
}

void Optimizer::refresh(Stream& stream) {
  for (const State& state : states_)
    if (state.parameter->weight.dtype() != Dtype::f32) run(stream, Cast{.y = state.parameter->weight, .x = state.master});
  run(stream, Fill{.x = gradients_});
}

void Optimizer::update(Stream& stream, double lr, int64_t step) {
  run(stream, Fill{.x = squared_norm_});
  run(stream, SquaredNorm{.total = squared_norm_, .x = gradients_});
  for (const State& state : states_) {
    const auto flat = [&](const Tensor& t) { return t.view({t.size()}); };
    const Tensor weight = state.parameter->weight;
    run(stream, AdamW{.weight = weight.dtype() == Dtype::f32 ? Tensor{} : flat(weight),
                      .master = flat(state.master),
                      .m = flat(state.m),
                      .v = flat(state.v),
                      .grad = flat(state.parameter->gradient),
                      .squared_norm = squared_norm_,
                      .lr = static_cast<float>(lr),
                      .beta1 = static_cast<float>(config_.beta1),
                      .beta2 = static_cast<float>(config_.beta2),
                      .eps = static_cast<float>(config_.eps),
                      .decay = state.parameter->spec.decays() ? static_cast<float>(config_.decay) : 0.0f,
                      .clip = static_cast<float>(config_.clip),
                      .step = step});
  }
}

std::vector<NamedShard> Optimizer::shards() const {
  std::vector<NamedShard> shards;
  const auto list = [&](const std::string& prefix, Tensor State::*which) {
    for (const State& state : states_)
      for (const auto& [name, piece] : pieces_of(state.parameter->spec, state.*which)) {
        std::vector<int64_t> shape, offset;
        for (int i = 0; i < piece.dims(); ++i) shape.push_back(piece.dim(i)), offset.push_back(0);
        shards.push_back({.name = prefix + name, .global_shape = shape, .offset = offset, .local = piece});
      }
  };
  list("", &State::master);
  list("adam_m/", &State::m);
  list("adam_v/", &State::v);
  return shards;
}

}  // namespace trireme
