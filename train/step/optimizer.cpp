#include "train/step/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/ops/exact_norm.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/ops/outer_step.h"
#include "parallel/collectives.h"

namespace trireme {

Optimizer::Optimizer(const RunConfig& config, const Mesh& mesh, const Stage& stage, ReplicaSync& sync, Arenas& arenas)
    : config_(config.train), parallel_(config.parallel), mesh_(mesh), stage_(stage), sync_(sync) {
  const Holding& holding = stage.shape().holding;
  const RuleKind rule = rule_of(config_);
  kept_ = rule.states;
  for (const Unit& unit : stage.units()) {
    State& state = states_.emplace_back();
    if (unit.tied_copy()) continue;
    const auto take = [&] { return arenas.optimizer.take(Dtype::f32, {unit.weights_part.size()}); };
    state.weight = unit.weights_part;
    state.gradient = unit.gradients_part;
    state.master = state.weight.dtype() == Dtype::f32 ? state.weight : take();
    for (size_t i = 0; i < kept_.size(); ++i) state.kept.push_back(take());
    if (parallel_.local()) state.outer = take(), state.momentum = take();
  }
  for (const Parameter& parameter : stage.parameters()) {
    const int64_t part = states_[parameter.unit].weight.size();
    const int64_t begin = holding.part * part, end = begin + part;  // elements of the unit
    const int64_t first = std::max(begin, parameter.begin), last = std::min(end, parameter.begin + parameter.spec.size());
    if (first < last)
      segments_.push_back({.parameter = &parameter, .first = first - parameter.begin, .at = first - begin, .count = last - first});
  }
  list_counted();
  list_cleared();
  const std::vector<RulePart> parts = list_parts();
  const auto rows = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  norm_table_ = arenas.temporaries.take(Dtype::i32, {rows(counted_), SquaredNorm::kRow});
  rule_ = rule.make(config_, parts, arenas.temporaries);
  if (config_.rounding == Rounding::stochastic)
    for (const RulePart& part : parts)
      if (part.weight) rounded_.push_back({.weight = part.weight, .master = part.master, .whole = part.whole});
  if (!rounded_.empty()) round_table_ = arenas.temporaries.take(Dtype::i32, {rows(rounded_), RoundWeights::kRow});
  numbers_ = arenas.temporaries.take(Dtype::f32, {StepNumbers::kSize});
  gate_ = arenas.temporaries.take(Dtype::f32, {Gate::kSize});
  squared_norm_ = arenas.temporaries.take(Dtype::f32, {SquaredSum::kSize});
  if (parallel_.local()) sums_ = arenas.temporaries.take(Dtype::f32, {SquaredSum::kSize});
  if (!stage.shape().tensor.exact) return;
  top_ = arenas.temporaries.take(Dtype::f32, {1});
  limbs_ = arenas.temporaries.take(Dtype::f32, {kLimbs});
}

// Lists the gradients that this rank adds to the norm. Neighbours in memory are merged, since the
// gaps between weights are zero.
void Optimizer::list_counted() {
  struct Counted {
    size_t unit;
    int64_t begin, end;
  };
  std::vector<Counted> ranges;
  bool open = false;  // the last range may grow
  for_each_piece([&](const PieceRange& piece) {
    const size_t unit = piece.segment->parameter->unit;
    if (!piece.copy && open && ranges.back().unit == unit)
      ranges.back().end = piece.end;
    else if (!piece.copy)
      ranges.push_back({.unit = unit, .begin = piece.begin, .end = piece.end});
    open = !piece.copy;
  });
  for (const Counted& range : ranges) counted_.push_back(states_[range.unit].gradient.slice(range.begin, range.end));
  if (std::ranges::none_of(ranges, [&](const Counted& range) { return sync_.sums_once(range.unit); })) return;
  for (const Tensor& x : counted_) squares_.emplace_back(x);
  for (size_t i = 0, end = 0; i < ranges.size(); i = end) {
    while (end < ranges.size() && ranges[end].unit == ranges[i].unit) ++end;
    if (sync_.sums_once(ranges[i].unit)) sync_.square(ranges[i].unit, std::span(squares_).subspan(i, end - i));
  }
}

// Lists the gradients that are cleared although the rule does not read them: whole ones, of which it reads this replica's part,
// and those of tied copies. Neighbours are merged, since the gaps between weights are zero.
void Optimizer::list_cleared() {
  const Holding& holding = stage_.shape().holding;
  for (const Unit& unit : stage_.units())
    if (unit.tied_copy()) cleared_.push_back(holding.gradients ? unit.gradients : unit.gradients_part);
  if (!holding.gradients || holding.parts == 1) return;
  const Parameter* before = nullptr;  // in the last range
  int64_t begin = 0;
  for (const Parameter& p : stage_.parameters()) {
    const bool cleared = !stage_.written(p), grows = cleared && before != nullptr && before->unit == p.unit;
    if (cleared && !grows) begin = p.begin, cleared_.emplace_back();
    if (cleared) cleared_.back() = stage_.units()[p.unit].gradients.slice(begin, p.begin + p.spec.size());
    before = cleared ? &p : nullptr;
  }
}

RulePart Optimizer::part_of(const Segment& s, int64_t begin, int64_t end, const WholeTensor& whole) const {
  const State& state = states_[s.parameter->unit];
  const auto part = [&](const Tensor& t) { return t.slice(begin, end); };
  RulePart of{.weight = state.weight.dtype() == Dtype::f32 ? Tensor{} : part(state.weight),
              .master = part(state.master),
              .gradient = part(state.gradient),
              .states = {},
              .decays = s.parameter->spec.decays(),
              .clears = !stage_.written(*s.parameter),
              .whole = whole};
  for (const Tensor& kept : state.kept) of.states.push_back(part(kept));
  return of;
}

// Lists all pieces, each rounded as in the whole model, and the padding after them.
std::vector<RulePart> Optimizer::list_parts() const {
  std::vector<RulePart> parts;
  for_each_piece([&](const PieceRange& piece) {
    parts.push_back(part_of(*piece.segment, piece.begin, piece.end, whole_of(piece, "rounding of " + piece.name)));
  });
  for (const Segment& s : segments_) {
    const WeightSpec& spec = s.parameter->spec;
    int64_t rows = 0;
    for (const WeightPiece& piece : spec.all_pieces()) rows += piece.rows;
    const int64_t padding = std::max(rows * (spec.size() / spec.shape[0]), s.first), end = s.first + s.count;
    if (padding < end) parts.push_back(part_of(s, s.at + padding - s.first, s.at + s.count, {}));
  }
  return parts;
}

// Assigns a stream of random numbers to a piece, with one number per element of the whole tensor.
WholeTensor Optimizer::whole_of(const PieceRange& piece, const std::string& stream) const {
  const int64_t stride = piece.whole.back(), matrix = piece.offset.size() == 2;
  return {.key = stream_key(static_cast<uint64_t>(config_.seed), stream),
          .first = piece.first,
          .origin = matrix ? piece.offset[0] * stride + piece.offset[1] : piece.offset[0],
          .cols = piece.shape.back(),
          .stride = stride};
}

void Optimizer::initialise(Stream& stream, double init_std, int64_t layers) {
  const auto deviation = [&](Init init) {
    if (init == Init::residual) return init_std / std::sqrt(2.0 * static_cast<double>(layers));
    return init == Init::position ? init_std / 2 : init_std;
  };
  for (const State& state : states_) {
    if (state.master) run(stream, Fill{.x = state.master});
    for (const Tensor& kept : state.kept) run(stream, Fill{.x = kept});
  }
  for_each_piece([&](const PieceRange& piece) {
    const Parameter& parameter = *piece.segment->parameter;
    const Tensor x = states_[parameter.unit].master.slice(piece.begin, piece.end);
    const Init init = parameter.spec.init;
    if (init == Init::one) run(stream, Fill{.x = x, .value = 1});
    if (init == Init::zero || init == Init::one) return;
    const WholeTensor whole = whole_of(piece, piece.name);
    run(stream, FillNormal{.x = x,
                           .stddev = static_cast<float>(deviation(init)),
                           .key = whole.key,
                           .first = whole.first,
                           .origin = whole.origin,
                           .cols = whole.cols,
                           .stride = whole.stride});
  });
  sync_.copies().initialise(stream, config_.seed);
  begin_round(stream);
  refresh(stream, 0);
}

void Optimizer::begin_round(Stream& stream) {
  for (const State& state : states_) {
    if (!state.outer) continue;
    run(stream, Cast{.y = state.outer, .x = state.master});
    run(stream, Fill{.x = state.momentum});
  }
}

void Optimizer::refresh(Stream& stream, int64_t steps) {
  run(stream, SquaredNormTable{.table = norm_table_, .xs = counted_});
  rule_->write_tables(stream);
  if (!rounded_.empty()) run(stream, RoundWeightsTable{.table = round_table_, .parts = rounded_});
  cast_weights(stream, steps);
  clear_gradients(stream);
  if (parallel_.local() || parallel_.apart_after > 0) {
    // Takes scratch memory of what the first steps may not do, since later ones must not take any.
    sync_.sum_copies();
    if (parallel_.local_moments == LocalMoments::mean) sync_.sum_copies(true);
    clear_gradients(stream);
  }
  sync_.spread();
}

void Optimizer::clear_gradients(Stream& stream) {
  for (const Unit& unit : stage_.units()) {
    run(stream, Fill{.x = unit.gradients});
    run(stream, Fill{.x = unit.gradients_part});
  }
}

// Computes the step's weights from the masters after `step` updates.
void Optimizer::cast_weights(Stream& stream, int64_t step) {
  round(stream, step);
  for (const State& state : states_)
    if (config_.rounding == Rounding::nearest && state.weight && state.weight.dtype() != Dtype::f32)
      run(stream, Cast{.y = state.weight, .x = state.master});
}

// The squared norm = the mean of the copies', so that all scale or skip the same step.
void Optimizer::average_squares(Stream& stream) {
  run(mesh_.copy_group(), stream, AllReduce{.x = squared_norm_});
  run(stream, Cast{.y = sums_, .x = squared_norm_});
  run(stream, Fill{.x = squared_norm_});
  for (int64_t i = 0; i < SquaredSum::kSize; ++i)
    run(stream,
        SumInto{
            .total = squared_norm_.slice(i, i + 1), .x = sums_.slice(i, i + 1), .scale = 1 / static_cast<float>(mesh_.copies())});
}

void Optimizer::sum_squares(Stream& stream) {
  const auto combine = [&](const Tensor& x, AllReduce::Kind kind) {
    for (const Comm* group : mesh_.state_groups())
      if (group->size() > 1) run(*group, stream, AllReduce{.x = x, .kind = kind});
  };
  if (!limbs_) {
    run(stream, SquaredNorm{.total = squared_norm_, .xs = counted_, .table = norm_table_, .known = squares_});
    combine(squared_norm_, AllReduce::Kind::sum);
    if (sync_.local() && mesh_.copies() > 1) average_squares(stream);
    return;
  }
  run(stream, Fill{.x = top_});
  run(stream, Fill{.x = limbs_});
  for (const Tensor& gradient : counted_) run(stream, LargestMagnitude{.top = top_, .x = gradient});
  combine(top_, AllReduce::Kind::max);
  for (const Tensor& gradient : counted_) run(stream, ExactSquares{.limbs = limbs_, .x = gradient, .top = top_});
  combine(limbs_, AllReduce::Kind::sum);
  run(stream, SumOfSquares{.total = squared_norm_, .limbs = limbs_, .top = top_});
}

void Optimizer::schedule(Stream& stream, double lr, int64_t step, const StepLimits& limits) {
  run(stream, StepNumbers{.numbers = numbers_, .step = step, .limits = limits});
  rule_->schedule(stream, lr, step);
}

void Optimizer::round(Stream& stream, int64_t step) {
  if (!rounded_.empty()) run(stream, RoundWeights{.parts = rounded_, .table = round_table_, .step = step});
}

void Optimizer::skip_update(Stream& stream, int64_t step) {
  if (config_.rounding != Rounding::stochastic) return;
  round(stream, step);
  sync_.spread();
}

void Optimizer::update(Stream& stream, const Tensor& loss) {
  sum_squares(stream);
  run(stream, UpdateGate{.gate = gate_,
                         .numbers = numbers_,
                         .squared_norm = squared_norm_,
                         .loss = loss,
                         .clip = static_cast<float>(config_.clip)});
  rule_->update(stream, gate_);
  if (!sync_.local()) sync_.copies().keep(stream, gate_);
  for (const Tensor& gradients : cleared_) run(stream, Fill{.x = gradients});
  sync_.spread();
}

// Takes an outer step by the sum of the copies' outer gradients, which is where this one's gradient was.
void Optimizer::outer_step(Stream& stream, const State& state, const Tensor& u, double lr, double momentum) {
  run(stream, OuterStep{.outer = state.outer,
                        .u = u,
                        .master = state.master,
                        .delta = state.gradient,
                        .scale = 1 / static_cast<float>(mesh_.copies()),
                        .lr = static_cast<float>(lr),
                        .momentum = static_cast<float>(momentum)});
}

// Each of the rule's states = the mean of the copies' (Cheng and Glasgow, "Convergence of distributed adaptive optimization with
// local updates", 2025). All of them: what one copy alone has seen would be a large step for one whose second moment is small.
// An outer step of rate 0 sets only its momentum, here the state, to the mean of what it is given.
void Optimizer::average_moments(Stream& stream) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    for (const State& state : states_)
      if (state.outer) run(stream, Cast{.y = state.gradient, .x = state.kept[i]});
    sync_.sum_copies(true);
    for (const State& state : states_)
      if (state.outer) outer_step(stream, state, state.kept[i], 0, 0);
  }
}

void Optimizer::meet(Stream& stream, int64_t step) {
  const bool follows = parallel_.local() && !parallel_.apart_at(step);
  if (!follows && !parallel_.meets_after(step)) return;
  sync_.join();  // gathers of the update before
  if (follows) return begin_round(stream);
  for (const State& state : states_)
    if (state.outer) run(stream, OuterGradient{.delta = state.gradient, .outer = state.outer, .master = state.master});
  sync_.sum_copies();
  for (const State& state : states_)
    if (state.outer) outer_step(stream, state, state.momentum, parallel_.outer_lr, parallel_.outer_momentum);
  sync_.copies().keep(stream);
  if (parallel_.local_moments == LocalMoments::mean) average_moments(stream);
  cast_weights(stream, step);
  sync_.spread();
}

}  // namespace trireme
