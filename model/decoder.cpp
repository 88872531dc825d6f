#include "model/decoder.h"

#include <algorithm>

#include "model/int8_weight.h"

namespace trireme {
namespace {

constexpr size_t kChunk = 128;  // tokens of one pass over a prompt; bounds the temporaries

}  // namespace

Decoder::Decoder(const ModelConfig& config, const DecoderDtypes& dtypes, Arenas& arenas, Stream& stream)
    : config_(config), dtypes_(dtypes), temporaries_(arenas.temporaries) {
  take_weights(arenas.weights);
  rope_ = take_rope(config, arenas.activations, stream);
  tokens_ = arenas.activations.take(Dtype::i32, {config.context});
  positions_ = arenas.activations.take(Dtype::i32, {config.context});
  for (int64_t i = 0; i < config.layers; ++i) {
    k_.push_back(arenas.activations.take(dtypes.step, {config.context, config.kv_heads, config.head_size}));
    v_.push_back(arenas.activations.take(dtypes.step, {config.context, config.kv_heads, config.head_size}));
  }
  logits_ = arenas.activations.take(Dtype::f32, {1, shard_vocab(config, 1)});
  if (positions_.data() == nullptr) return;
  for (int64_t i = 0; i < config.context; ++i) positions_.as<int32_t>()[i] = static_cast<int32_t>(i);
}

void Decoder::take_weights(Arena& arena) {
  const auto list = [&](const WeightSpec& spec, const Tensor& weight) {
    parameters_.push_back({.spec = spec, .weight = weight, .gradient = {}, .unit = 0, .begin = 0});
  };
  declare_whole(weights_, config_, [&](UnitKind kind, Tensor& t, const WeightSpec& spec) {
    const bool looked_up = kind == UnitKind::table || kind == UnitKind::positions;
    if (spec.is_vector())
      t = arena.take(Dtype::f32, {spec.shape[0]});
    else if (dtypes_.int8 && !looked_up)
      t = take_int8(arena, spec.shape[0], spec.shape[1]);
    else
      t = arena.take(dtypes_.step, {spec.shape[0], spec.shape[1]});
    list(spec, t);
  });
  if (!dtypes_.int8 || !config_.tied) return;
  const WeightSpec table = parameters_.front().spec;
  weights_.head.classifiers = {take_int8(arena, table.shape[0], table.shape[1])};
  list(table, weights_.head.classifiers.front());
}

void Decoder::feed(Stream& stream, std::span<const int32_t> tokens) {
  require(static_cast<int64_t>(tokens.size()) <= capacity() - length_,
          text(tokens.size(), " tokens on top of ", length_, " exceed the context of ", capacity()));
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(kChunk, tokens.size())))
    feed_chunk(stream, tokens.first(std::min(kChunk, tokens.size())));
}

void Decoder::feed_chunk(Stream& stream, std::span<const int32_t> tokens) {
  const int64_t n = static_cast<int64_t>(tokens.size()), end = length_ + n;
  if (tokens_.data() != nullptr) std::copy(tokens.begin(), tokens.end(), tokens_.as<int32_t>() + length_);
  const Microbatch batch{
      .rows = 1, .context = n, .tokens = tokens_.slice(length_, end), .positions = positions_.slice(length_, end)};
  Pass pass{.stream = stream, .temporaries = temporaries_, .config = config_, .batch = batch, .rope = rope_, .dtype = dtypes_.step};
  const Frame frame(temporaries_);
  Tensor delta = pass.temporary(config_.width), x = temporaries_.take(dtypes_.residual, {n, config_.width}),
         next = temporaries_.take(dtypes_.residual, {n, config_.width});
  embedding_forward(pass, weights_.embedding, x);
  Residual residual{.x = x};
  for (size_t i = 0; i < k_.size(); ++i) {
    const Frame layer(temporaries_);
    BlockSaved saved;
    saved.take(temporaries_, config_, kWhole, {.rows = 1, .context = n, .dtype = dtypes_.step, .residual = dtypes_.residual}, {});
    // The stream enters in x and leaves in `next`; the rest of the layer's memory is released.
    if (i == 0) saved.attention_norm.sum = x;
    saved.mlp_norm.sum = i % 2 == 0 ? next : x;
    AttentionSaved& attention = saved.attention.front();
    attention.k = k_[i].slice(length_, end);
    attention.v = v_[i].slice(length_, end);
    attention.cached_k = k_[i].slice(0, end).view({1, end, config_.kv_heads, config_.head_size});
    attention.cached_v = v_[i].slice(0, end).view({1, end, config_.kv_heads, config_.head_size});
    residual = block_forward(pass, weights_.blocks[i], saved, residual, delta);
  }
  NormSaved last;
  last.take(temporaries_, config_, {n, dtypes_.step, dtypes_.residual});
  norm_forward(pass, weights_.head.norm, last, residual);
  head_logits(pass, weights_.head, 0, last.y.slice(n - 1, n), logits_);
  length_ = end;
}

}  // namespace trireme
