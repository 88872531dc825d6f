#include "model/decoder.h"

#include <algorithm>

#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"
#include "model/int8_weight.h"

namespace trireme {
namespace {

constexpr int64_t kChunk = 128;  // tokens of one pass over a prompt; bounds the temporaries

}  // namespace

Decoder::Decoder(const ModelConfig& config, const DecoderDtypes& dtypes, Arenas& arenas, Stream& stream, const DecoderRoom& room)
    : config_(config),
      dtypes_(dtypes),
      temporaries_(arenas.temporaries),
      capacity_(room.tokens > 0 ? std::min(room.tokens, config.context) : config.context),
      lengths_(static_cast<size_t>(room.sequences)) {
  take_weights(arenas.weights);
  rope_ = take_rope(config, arenas.activations, stream);
  const int64_t most = std::max(std::min(kChunk, capacity_), kFewRows), all = room.sequences * capacity_;
  tokens_ = arenas.activations.take(Dtype::i32, {most});
  positions_ = arenas.activations.take(Dtype::i32, {most});
  for (int64_t i = 0; i < config.layers; ++i) {
    k_.push_back(arenas.activations.take(dtypes.step, {all, config.kv_heads, config.head_size}));
    v_.push_back(arenas.activations.take(dtypes.step, {all, config.kv_heads, config.head_size}));
  }
  logits_ = arenas.activations.take(Dtype::f32, {room.sequences, shard_vocab(config, 1)});
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

void Decoder::check_room(int64_t sequence, int64_t tokens) const {
  require(tokens <= capacity_ - length(sequence),
          text(tokens, " tokens on top of ", length(sequence), " exceed the context of ", capacity_));
}

void Decoder::feed(Stream& stream, std::span<const int32_t> tokens, int64_t sequence) {
  check_room(sequence, std::ssize(tokens));
  for (size_t count; !tokens.empty(); tokens = tokens.subspan(count)) {
    count = std::min(static_cast<size_t>(kChunk), tokens.size());
    advance(stream, {&sequence, 1}, tokens.first(count), count == tokens.size() ? logits_.slice(0, 1) : Tensor{});
  }
}

void Decoder::copy(Stream& stream, int64_t from, int64_t to) {
  lengths_[at(to)] = length(from);
  for (size_t i = 0; i < k_.size(); ++i) {
    const CachedHeads target = cached_of(i, to), source = cached_of(i, from);
    run(stream, Cast{.y = target.k, .x = source.k});
    run(stream, Cast{.y = target.v, .x = source.v});
  }
}

void Decoder::step(Stream& stream, std::span<const Next> next) {
  for (const Next& one : next) check_room(one.sequence, 1);
  for (size_t first = 0; first < next.size(); first += kFewRows) {
    std::vector<int64_t> sequences;
    std::vector<int32_t> tokens;
    for (const Next& one : next.subspan(first, std::min(static_cast<size_t>(kFewRows), next.size() - first)))
      sequences.push_back(one.sequence), tokens.push_back(one.token);
    const auto row = static_cast<int64_t>(first);
    advance(stream, sequences, tokens, logits_.slice(row, row + std::ssize(sequences)));
  }
}

Tensor Decoder::logits(int64_t i) const {
  return logits_.slice(i, i + 1).view({logits_.cols()}).slice(0, config_.vocab).view({1, config_.vocab});
}

void Decoder::measure(Stream& stream) {
  feed(stream, std::vector<int32_t>(at(capacity_)));
  clear(0);
  feed(stream, std::vector<int32_t>(at(std::min(kChunk, capacity_))));  // the most tokens at once, with logits
  std::vector<Next> next;
  for (int64_t i = 0; i < sequences(); ++i) clear(i), next.push_back({.sequence = i, .token = 0});
  step(stream, next);
}

// Equally many tokens for each of these sequences, after those that it has.
Microbatch Decoder::take_batch(std::span<const int64_t> sequences, std::span<const int32_t> tokens) {
  const int64_t n = std::ssize(tokens), rows = std::ssize(sequences);
  const Microbatch batch{.rows = rows, .context = n / rows, .tokens = tokens_.slice(0, n), .positions = positions_.slice(0, n)};
  if (tokens_.data() == nullptr) return batch;
  std::ranges::copy(tokens, tokens_.as<int32_t>());
  for (int64_t i = 0; i < n; ++i)
    positions_.as<int32_t>()[i] = static_cast<int32_t>(length(sequences[at(i / batch.context)]) + i % batch.context);
  return batch;
}

CachedHeads Decoder::cached_of(size_t layer, int64_t sequence) const {
  const int64_t begin = sequence * capacity_, end = begin + length(sequence);
  return {.k = k_[layer].slice(begin, end), .v = v_[layer].slice(begin, end)};
}

// The last norm's result [N, C]. lengths_ count the tokens of this pass already.
Tensor Decoder::forward(Pass& pass, std::span<const int64_t> sequences) {
  const Microbatch& batch = pass.batch;
  const int64_t n = batch.size();
  Tensor delta = pass.temporary(config_.width), x = temporaries_.take(dtypes_.residual, {n, config_.width}),
         next = temporaries_.take(dtypes_.residual, {n, config_.width});
  embedding_forward(pass, weights_.embedding, x);
  Residual residual{.x = x};
  for (size_t i = 0; i < k_.size(); ++i) {
    const Frame layer(temporaries_);
    BlockSaved saved;
    saved.take(temporaries_, config_, kWhole,
               {.rows = batch.rows, .context = batch.context, .dtype = dtypes_.step, .residual = dtypes_.residual}, {});
    // The stream enters in x and leaves in `next`; the rest of the layer's memory is released.
    if (i == 0) saved.attention_norm.sum = x;
    saved.mlp_norm.sum = i % 2 == 0 ? next : x;
    std::vector<CachedHeads> cached;
    for (const int64_t sequence : sequences) cached.push_back(cached_of(i, sequence));
    saved.attention.front().cached = cached;
    residual = block_forward(pass, weights_.blocks[i], saved, residual, delta);
  }
  NormSaved last;
  last.take(temporaries_, config_, {n, dtypes_.step, dtypes_.residual});
  norm_forward(pass, weights_.head.norm, last, residual);
  return last.y;
}

void Decoder::advance(Stream& stream, std::span<const int64_t> sequences, std::span<const int32_t> tokens, const Tensor& logits) {
  const Microbatch batch = take_batch(sequences, tokens);
  for (const int64_t sequence : sequences) lengths_[at(sequence)] += batch.context;
  Pass pass{.stream = stream, .temporaries = temporaries_, .config = config_, .batch = batch, .rope = rope_, .dtype = dtypes_.step};
  const Frame frame(temporaries_);
  const Tensor y = forward(pass, sequences);
  if (!logits.present()) return;
  const int64_t n = batch.size();
  head_logits(pass, weights_.head, 0, y.slice(n - batch.rows, n), logits);
}

}  // namespace trireme
