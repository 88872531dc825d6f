#include "model/stage.h"

#include "kernels/ops/rope.h"

namespace trireme {

void StageWeights::declare_unit(size_t unit, const WeightVisitor& visit, const ModelConfig& config) {
  blocks.resize(static_cast<size_t>(config.layers));
  if (unit == 0) return embedding.declare(visit, "embedding", config);
  if (unit <= blocks.size()) return blocks[unit - 1].declare(visit, "layers." + std::to_string(unit - 1), config);
  head.declare(visit, "head", config);
  if (config.tied) head.classifier = embedding.table;
}

namespace {

constexpr int64_t kAlign = 128;  // elements: 256 bytes in bf16

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

int64_t elements_of(size_t unit, const ModelConfig& config) {
  int64_t end = 0;
  StageWeights none;
  none.declare_unit(
      unit, [&](Tensor&, const WeightSpec& spec) { end = round_up(end + spec.size(), kAlign); }, config);
  return end;
}

}  // namespace

std::vector<Tensor> take_units(StageWeights& weights, const ModelConfig& config, Dtype dtype, int64_t parts, Arena& arena,
                               const std::function<void(const Parameter&)>& each) {
  std::vector<Tensor> units;
  for (size_t unit = 0; unit < StageWeights::units(config); ++unit) {
    const Tensor all = units.emplace_back(arena.take(dtype, {round_up(elements_of(unit, config), kAlign * parts)}));
    int64_t begin = 0;
    const auto visit = [&](Tensor& t, const WeightSpec& spec) {
      t = all.slice(begin, begin + spec.size());
      if (spec.shape.size() == 2) t = t.view({spec.shape[0], spec.shape[1]});
      each({.spec = spec, .weight = t, .gradient = {}, .unit = unit, .begin = begin});
      begin = round_up(begin + spec.size(), kAlign);
    };
    weights.declare_unit(unit, visit, config);
  }
  return units;
}

std::vector<Parameter> take_weights(StageWeights& weights, const ModelConfig& config, Dtype dtype, Arena& arena) {
  std::vector<Parameter> parameters;
  take_units(weights, config, dtype, 1, arena, [&](const Parameter& p) { parameters.push_back(p); });
  return parameters;
}

Tensor take_rope(const ModelConfig& config, Arena& arena, Stream& stream) {
  if (config.family != Family::llama) return {};
  const bool scaled = config.rope_scaling == RopeScaling::llama3;
  Tensor table = arena.take(Dtype::f32, {config.context, config.head_size / 2, 2});
  run(stream, RopeTable{.table = table,
                        .theta = config.theta,
                        .factor = scaled ? config.rope_factor : 1,
                        .low_factor = config.rope_low_factor,
                        .high_factor = config.rope_high_factor,
                        .original_context = static_cast<double>(config.rope_original_context)});
  return table;
}

Stage::Stage(const ModelConfig& config, const PassShape& shape, Arenas& arenas, Stream& stream)
    : config_(config), shape_(shape), temporaries_(arenas.temporaries) {
  const std::vector<Tensor> all =
      take_units(weights_, config, shape.dtype, shape.parts, arenas.weights, [&](const Parameter& p) { parameters_.push_back(p); });
  size_t next = 0;
  const std::vector<Tensor> gradients = take_units(gradients_, config, Dtype::f32, shape.parts, arenas.gradients,
                                                   [&](const Parameter& p) { parameters_[next++].gradient = p.weight; });
  for (size_t unit = 0; unit < all.size(); ++unit) units_.push_back({.weights = all[unit], .gradients = gradients[unit]});
  rope_ = take_rope(config, arenas.activations, stream);
  saved_.resize(static_cast<size_t>(config.layers));
  for (BlockSaved& saved : saved_) saved.take(arenas.activations, config, shape.rows, shape.context, shape.dtype);
  head_norm_.take(arenas.activations, config, shape.rows * shape.context, shape.dtype);
}

Pass Stage::pass(Stream& stream, const Microbatch& batch) {
  require(batch.rows == shape_.rows && batch.context == shape_.context,
          text("a batch of ", batch.rows, " x ", batch.context, " for a stage of ", shape_.rows, " x ", shape_.context));
  return {.stream = stream, .temporaries = temporaries_, .config = config_, .batch = batch, .rope = rope_, .dtype = shape_.dtype};
}

void Stage::forward(Stream& stream, const Microbatch& batch, const UnitNeeded& needed) {
  const auto about_to_read = [&](size_t unit) {
    if (needed) needed(unit);
  };
  Pass pass = this->pass(stream, batch);
  const Frame frame(temporaries_);
  Tensor delta = pass.temporary(config_.width);
  // 1. tokens to the stream
  Residual residual{.x = saved_.front().attention_norm.sum};
  about_to_read(0);
  embedding_forward(pass, weights_.embedding, residual.x);
  // 2. the blocks
  for (size_t i = 0; i < saved_.size(); ++i) {
    about_to_read(i + 1);
    residual = block_forward(pass, weights_.blocks[i], saved_[i], residual, delta);
  }
  // 3. the last norm; the classifier follows in backward, evaluate or logits
  about_to_read(saved_.size() + 1);
  norm_forward(pass, weights_.head.norm, head_norm_, residual);
}

void Stage::backward(Stream& stream, const Microbatch& batch, const LossSum& loss, const GradientsDone& done) {
  const auto finished = [&](size_t unit) {
    if (done) done(unit);
  };
  Pass pass = this->pass(stream, batch);
  const Frame frame(temporaries_);
  Tensor d = pass.temporary(config_.width);
  // 3.
  {
    const Frame inner(temporaries_);
    Tensor dnorm = pass.temporary(config_.width);
    head_loss_backward(pass, weights_.head, gradients_.head, head_norm_.y, dnorm, loss);
    norm_backward(pass, weights_.head.norm, gradients_.head.norm, head_norm_, dnorm, d, true);
  }
  finished(saved_.size() + 1);
  // 2.
  for (size_t i = saved_.size(); i-- > 0;) {
    block_backward(pass, weights_.blocks[i], gradients_.blocks[i], saved_[i], d);
    finished(i + 1);
  }
  // 1. (with a tied head, its part of the gradient is in the table since 3.)
  embedding_backward(pass, gradients_.embedding, d);
  finished(0);
}

void Stage::evaluate(Stream& stream, const Microbatch& batch, const LossSum& loss) {
  Pass pass = this->pass(stream, batch);
  head_loss(pass, weights_.head, head_norm_.y, loss);
}

void Stage::logits(Stream& stream, const Microbatch& batch, Tensor logits) {
  Pass pass = this->pass(stream, batch);
  head_logits(pass, weights_.head, head_norm_.y, logits);
}

}  // namespace trireme
