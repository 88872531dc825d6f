#include "train/hub/published_weights.h"

#include <optional>
#include <span>

#include "base/error.h"
#include "model/stage.h"
#include "train/hub/published_layout.h"

namespace trireme {

namespace {

// "layers.3.attention.q" -> "3", "attention.q".
struct InLayer {
  std::string layer, rest;
};
std::optional<InLayer> in_layer(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  const size_t dot = name.find('.', kLayers.size());
  return InLayer{name.substr(kLayers.size(), dot - kLayers.size()), name.substr(dot + 1)};
}

// A name of ours and the published one.
struct Renamed {
  const char *ours, *published;
};

const char* renamed(std::span<const Renamed> names, const std::string& ours) {
  for (const Renamed& name : names)
    if (ours == name.ours) return name.published;
  throw Error(text("no published name for ", ours));
}

constexpr Renamed kGpt2Outside[] = {{"embedding.tokens", "transformer.wte.weight"},
                                    {"embedding.positions", "transformer.wpe.weight"},
                                    {"head.norm.gain", "transformer.ln_f.weight"},
                                    {"head.norm.bias", "transformer.ln_f.bias"},
                                    {"head.classifier", "lm_head.weight"}};
constexpr Renamed kGpt2InLayer[] = {{"attention_norm.gain", "ln_1.weight"},
                                    {"attention_norm.bias", "ln_1.bias"},
                                    {"attention.q", "attn.c_attn.weight"},
                                    {"attention.k", "attn.c_attn.weight"},
                                    {"attention.v", "attn.c_attn.weight"},
                                    {"attention.q_bias", "attn.c_attn.bias"},
                                    {"attention.k_bias", "attn.c_attn.bias"},
                                    {"attention.v_bias", "attn.c_attn.bias"},
                                    {"attention.out", "attn.c_proj.weight"},
                                    {"attention.out_bias", "attn.c_proj.bias"},
                                    {"mlp_norm.gain", "ln_2.weight"},
                                    {"mlp_norm.bias", "ln_2.bias"},
                                    {"mlp.up", "mlp.c_fc.weight"},
                                    {"mlp.up_bias", "mlp.c_fc.bias"},
                                    {"mlp.down", "mlp.c_proj.weight"},
                                    {"mlp.down_bias", "mlp.c_proj.bias"}};
constexpr Renamed kLlamaOutside[] = {{"embedding.tokens", "model.embed_tokens.weight"},
                                     {"head.norm.gain", "model.norm.weight"},
                                     {"head.classifier", "lm_head.weight"}};
constexpr Renamed kLlamaInLayer[] = {{"attention_norm.gain", "input_layernorm.weight"},
                                     {"attention.q", "self_attn.q_proj.weight"},
                                     {"attention.k", "self_attn.k_proj.weight"},
                                     {"attention.v", "self_attn.v_proj.weight"},
                                     {"attention.q_bias", "self_attn.q_proj.bias"},
                                     {"attention.k_bias", "self_attn.k_proj.bias"},
                                     {"attention.v_bias", "self_attn.v_proj.bias"},
                                     {"attention.q_gain", "self_attn.q_norm.weight"},
                                     {"attention.k_gain", "self_attn.k_norm.weight"},
                                     {"attention.out", "self_attn.o_proj.weight"},
                                     {"mlp_norm.gain", "post_attention_layernorm.weight"},
                                     {"mlp.gate", "mlp.gate_proj.weight"},
                                     {"mlp.up", "mlp.up_proj.weight"},
                                     {"mlp.down", "mlp.down_proj.weight"}};

PublishedPlace place_of(const ModelConfig& model, const std::string& ours, const std::vector<int64_t>& shape) {
  const std::optional<InLayer> inside = in_layer(ours);
  const bool gpt2 = model.family == Family::gpt2;
  PublishedPlace place{.name = "", .transposed = false, .first = 0, .all = shape[0]};
  if (!inside) {
    place.name = gpt2 ? renamed(kGpt2Outside, ours) : renamed(kLlamaOutside, ours);
    return place;
  }
  if (!gpt2) {
    place.name = "model.layers." + inside->layer + "." + renamed(kLlamaInLayer, inside->rest);
    return place;
  }
  place.name = "transformer.h." + inside->layer + "." + renamed(kGpt2InLayer, inside->rest);
  place.transposed = shape.size() == 2;
  if (place.name.find("c_attn") != std::string::npos) {
    const char part = inside->rest[std::string("attention.").size()];
    place.all = model.q_width() + 2 * model.kv_width();
    place.first = part == 'q' ? 0 : part == 'k' ? model.q_width() : model.q_width() + model.kv_width();
  }
  return place;
}

}  // namespace

std::vector<WholeWeight> published_weights(const ModelConfig& model) {
  layout_of(model);
  StageWeights listed;
  std::vector<WholeWeight> weights;
  declare_whole(listed, model, [&](UnitKind, Tensor&, const WeightSpec& spec) {
    const Tensor weight = spec.is_vector() ? Tensor(nullptr, Dtype::f32, Place::none, {spec.shape[0]})
                                           : Tensor(nullptr, Dtype::f32, Place::none, {spec.shape[0], spec.shape[1]});
    for (const auto& [name, piece] : pieces_of(spec, weight)) {
      std::vector<int64_t> shape;
      for (int d = 0; d < piece.dims(); ++d) shape.push_back(piece.dim(d));
      weights.push_back({.name = name, .shape = shape, .place = place_of(model, name, shape)});
    }
  });
  return weights;
}

std::vector<int64_t> published_shape(const WholeWeight& weight) {
  if (weight.shape.size() == 1) return {weight.place.all};
  if (weight.place.transposed) return {weight.shape[1], weight.place.all};
  return {weight.place.all, weight.shape[1]};
}

}  // namespace trireme
