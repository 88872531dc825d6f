#include "train/hub/published.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "kernels/device.h"
#include "model/stage.h"

namespace trireme {

namespace {

enum class Layout { gpt2, llama, mistral, qwen2, qwen3 };

struct LayoutNames {
  Layout layout;
  const char *type, *architecture;
};
constexpr LayoutNames kLayouts[] = {{Layout::gpt2, "gpt2", "GPT2LMHeadModel"},
                                    {Layout::llama, "llama", "LlamaForCausalLM"},
                                    {Layout::mistral, "mistral", "MistralForCausalLM"},
                                    {Layout::qwen2, "qwen2", "Qwen2ForCausalLM"},
                                    {Layout::qwen3, "qwen3", "Qwen3ForCausalLM"}};

Layout layout_of(const ModelConfig& model) {
  std::string reasons;
  const auto refuse = [&](const std::string& reason) { reasons += reason + "\n"; };
  Layout layout = Layout::gpt2;
  if (model.family == Family::gpt2) {
    if (model.q_width() != model.width) refuse("model.head_size: published GPT-2s have model.width / model.heads");
    if (model.window > 0) refuse("model.window: published GPT-2s have none");
  } else {
    layout = model.qk_norm ? Layout::qwen3 : model.qkv_bias ? Layout::qwen2 : model.window > 0 ? Layout::mistral : Layout::llama;
    if (model.qk_norm && model.qkv_bias) refuse("model.qkv_bias: no published layout has it beside model.qk_norm");
  }
  if (!reasons.empty()) throw ConfigError(reasons + "the model cannot be written in a published layout");
  return layout;
}

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

// What stands in a config.json, read with all that is wrong with it gathered.
class PublishedReading {
 public:
  explicit PublishedReading(const std::string& path) : path_(path) {
    std::ifstream in(path);
    if (!in) throw DataError(path + ": cannot be opened");
    json_ = Json::parse_or_null(in);
    if (!json_.is_object()) throw DataError(path + ": is no JSON object");
  }

  bool says(const char* key) const { return json_.contains(key); }  // null, too
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  std::string word(const char* key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(key, "must be a text");
    return json_[key].is_string() ? json_[key].get<std::string>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) refuse(key, "must be true or false");
    return json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }
  int64_t size(const char* key, std::optional<int64_t> otherwise = std::nullopt) {
    if (!has(key) && otherwise) return *otherwise;
    const bool good = has(key) && json_[key].is_integer() && json_[key].get<int64_t>() > 0;
    if (!good) refuse(key, "must be a whole number above 0");
    return good ? json_[key].get<int64_t>() : 1;
  }
  double number(const Json& of, const char* key, double otherwise) {
    if (!of.contains(key) || of[key].is_null()) return otherwise;
    const bool good = of[key].is_number() && of[key].get<double>() > 0;
    if (!good) refuse(key, "must be a number above 0");
    return good ? of[key].get<double>() : otherwise;
  }
  double number(const char* key, double otherwise) { return number(json_, key, otherwise); }
  void must_be(const char* key, bool value) {
    if (flag(key, value) != value) refuse(key, value ? "must be true: the other way is not computed here" : "is not computed here");
  }
  const Json& operator[](const char* key) const { return json_[key]; }
  void refuse(const std::string& key, const std::string& why) { problems_ += path_ + ": " + key + ": " + why + "\n"; }
  void end() const {
    if (!problems_.empty()) throw DataError(problems_.substr(0, problems_.size() - 1));
  }

 private:
  std::string path_, problems_;
  Json json_;
};

void read_gpt2(PublishedReading& in, ModelConfig& model) {
  model.family = Family::gpt2;
  model.layers = in.size("n_layer");
  model.width = in.size("n_embd");
  model.heads = in.size("n_head");
  model.ffn = in.size("n_inner", 4 * model.width);
  model.context = in.size("n_positions");
  model.norm_eps = in.number("layer_norm_epsilon", 1e-5);
  const std::string activation = in.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    in.refuse("activation_function", "'" + activation + "' is not computed here, but gelu_new is");
  in.must_be("scale_attn_weights", true);
  in.must_be("scale_attn_by_inverse_layer_idx", false);
  in.must_be("add_cross_attention", false);
}

void read_rope(PublishedReading& in, ModelConfig& model) {
  // Since version 5 of transformers all of it stands in rope_parameters.
  const bool newer = in.has("rope_parameters") && in["rope_parameters"].is_object();
  const bool scaled = in.has("rope_scaling") && in["rope_scaling"].is_object();
  const Json rope = newer ? in["rope_parameters"] : scaled ? in["rope_scaling"] : Json::object();
  model.theta = in.number(rope, "rope_theta", in.number("rope_theta", 10000));
  if (in.number(rope, "partial_rotary_factor", in.number("partial_rotary_factor", 1)) != 1)
    in.refuse("partial_rotary_factor", "all of a head is turned here");
  std::string type = "default";
  for (const char* key : {"type", "rope_type"})  // the second counts where both are
    if (rope.contains(key) && rope[key].is_string()) type = rope[key].get<std::string>();
  if (type == "default") return;
  if (type != "llama3") return in.refuse("rope_type", "'" + type + "' is not computed here; default and llama3 are");
  model.rope_scaling = RopeScaling::llama3;
  model.rope_factor = in.number(rope, "factor", 8);
  model.rope_low_factor = in.number(rope, "low_freq_factor", 1);
  model.rope_high_factor = in.number(rope, "high_freq_factor", 4);
  model.rope_original_context = static_cast<int64_t>(in.number(rope, "original_max_position_embeddings", 8192));
}

// Of Qwen, where layers may differ: from layer max_window_layers on they have a window, or layer_types says which.
void read_window(PublishedReading& in, ModelConfig& model) {
  if (!in.flag("use_sliding_window", false)) return;
  int64_t with = 0;
  if (in.has("layer_types") && in["layer_types"].is_array()) {
    with = std::ranges::count(in["layer_types"], Json("sliding_attention"));
  } else {
    const int64_t without = in.has("max_window_layers") && in["max_window_layers"] == 0 ? 0 : in.size("max_window_layers", 28);
    with = std::max<int64_t>(model.layers - without, 0);
  }
  if (with > 0 && with < model.layers) in.refuse("use_sliding_window", "a window for some of the layers is not computed here");
  if (with == model.layers) model.window = in.size("sliding_window");
}

void read_llama(PublishedReading& in, Layout layout, ModelConfig& model) {
  model.family = Family::llama;
  model.layers = in.size("num_hidden_layers");
  model.width = in.size("hidden_size");
  model.heads = in.size("num_attention_heads");
  model.kv_heads = in.size("num_key_value_heads", layout == Layout::mistral && !in.says("num_key_value_heads") ? 8 : model.heads);
  model.head_size = in.size("head_dim", layout == Layout::qwen3 ? 128 : std::max<int64_t>(1, model.width / model.heads));
  model.ffn = in.size("intermediate_size");
  model.context = in.size("max_position_embeddings");
  model.norm_eps = in.number("rms_norm_eps", 1e-6);
  model.qk_norm = layout == Layout::qwen3;
  model.qkv_bias = layout == Layout::qwen2;
  read_rope(in, model);
  if (const std::string activation = in.word("hidden_act", "silu"); activation != "silu")
    in.refuse("hidden_act", "'" + activation + "' is not computed here, but silu is");
  in.must_be("attention_bias", false);
  in.must_be("mlp_bias", false);
  if (layout == Layout::mistral && in.has("sliding_window")) model.window = in.size("sliding_window");
  if (layout == Layout::mistral && !in.says("sliding_window")) model.window = 4096;  // what transformers takes
  if (layout == Layout::qwen2 || layout == Layout::qwen3) read_window(in, model);
}

void put_rope(Json& json, const ModelConfig& model) {
  json["rope_theta"] = model.theta;
  json["rope_scaling"] = nullptr;
  if (model.rope_scaling == RopeScaling::llama3)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", model.rope_factor},
                            {"low_freq_factor", model.rope_low_factor},
                            {"high_freq_factor", model.rope_high_factor},
                            {"original_max_position_embeddings", model.rope_original_context}};
}

void put_llama(Json& json, Layout layout, const ModelConfig& model) {
  json["hidden_size"] = model.width;
  json["intermediate_size"] = model.ffn;
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.kv_heads;
  json["head_dim"] = model.head_size;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = model.context;
  json["rms_norm_eps"] = model.norm_eps;
  put_rope(json, model);
  json["attention_dropout"] = 0.0;
  if (layout == Layout::llama || layout == Layout::qwen3) json["attention_bias"] = false;
  if (layout == Layout::llama) json["mlp_bias"] = false;
  if (layout == Layout::llama) return;
  json["sliding_window"] = model.window > 0 ? Json(model.window) : Json(nullptr);
  if (layout == Layout::mistral) return;
  json["use_sliding_window"] = model.window > 0;
  json["max_window_layers"] = model.window > 0 ? 0 : model.layers;
}

void put_gpt2(Json& json, const ModelConfig& model) {
  json["n_positions"] = json["n_ctx"] = model.context;
  json["n_embd"] = model.width;
  json["n_layer"] = model.layers;
  json["n_head"] = model.heads;
  json["n_inner"] = model.ffn;
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = model.norm_eps;
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[dropout] = 0.0;
  json["scale_attn_weights"] = true;
}

void put_tokens(Json& json, const SpecialTokens& tokens) {
  json["bos_token_id"] = Json::parse(tokens.begin);
  json["eos_token_id"] = Json::parse(tokens.end);
}

}  // namespace

std::vector<WholeWeight> published_weights(const ModelConfig& model) {
  layout_of(model);
  Device device(Place::none);
  Arenas arenas(device, {});
  StageWeights listed;
  std::vector<WholeWeight> weights;
  for (const Parameter& parameter : take_weights(listed, model, Dtype::f32, arenas.weights))
    for (const auto& [name, piece] : pieces_of(parameter.spec, parameter.weight)) {
      std::vector<int64_t> shape;
      for (int d = 0; d < piece.dims(); ++d) shape.push_back(piece.dim(d));
      weights.push_back({.name = name, .shape = shape, .place = place_of(model, name, shape)});
    }
  return weights;
}

std::vector<int64_t> published_shape(const WholeWeight& weight) {
  if (weight.shape.size() == 1) return {weight.place.all};
  if (weight.place.transposed) return {weight.shape[1], weight.place.all};
  return {weight.place.all, weight.shape[1]};
}

std::string published_config(const ModelConfig& model, const SpecialTokens& tokens, const std::string& dtype,
                             const std::string& like) {
  Layout layout = layout_of(model);
  const bool known = layout == Layout::llama && std::filesystem::exists(like);
  if (known && PublishedReading(like).word("model_type", "") == "mistral") layout = Layout::mistral;
  const LayoutNames& names = kLayouts[static_cast<size_t>(layout)];
  Json json;
  json["architectures"] = {names.architecture};
  json["model_type"] = names.type;
  json["vocab_size"] = model.vocab;
  if (names.layout == Layout::gpt2)
    put_gpt2(json, model);
  else
    put_llama(json, names.layout, model);
  json["tie_word_embeddings"] = model.tied;
  json["initializer_range"] = model.init_std;
  json["torch_dtype"] = dtype;
  json["use_cache"] = true;
  put_tokens(json, tokens);
  return json.dump({.indent = 2}) + "\n";
}

std::string published_generation_config(const SpecialTokens& tokens) {
  Json json;
  json["_from_model_config"] = true;
  put_tokens(json, tokens);
  return json.dump({.indent = 2}) + "\n";
}

ModelConfig read_published_config(const std::string& path) {
  PublishedReading in(path);
  const std::string type = in.word("model_type", "");
  const auto* const names = std::ranges::find(kLayouts, type, &LayoutNames::type);
  if (names == std::end(kLayouts)) {
    in.refuse("model_type", "'" + type + "' is not read here: gpt2, llama, mistral, qwen2 and qwen3 are");
    in.end();
  }
  ModelConfig model;
  model.vocab = in.size("vocab_size");
  model.tied = in.flag("tie_word_embeddings", names->layout == Layout::gpt2);
  model.init_std = in.number("initializer_range", 0.02);
  if (in.has("quantization_config")) in.refuse("quantization_config", "weights must be floats that were not quantized");
  if (names->layout == Layout::gpt2)
    read_gpt2(in, model);
  else
    read_llama(in, names->layout, model);
  in.end();
  model.resolve();
  model.check([&](const char* key, const std::string& why) { in.refuse(key, why); });
  in.end();
  return model;
}

SpecialTokens read_special_tokens(const std::string& path) {
  const PublishedReading in(path);
  const auto ids = [&](const char* key) { return in.has(key) ? in[key].dump() : std::string("null"); };
  return {.begin = ids("bos_token_id"), .end = ids("eos_token_id")};
}

std::string published_tokenizer(const std::string& directory) {
  for (const char* name : {"/tokenizer.json", "/tokenizer.model"})
    if (!directory.empty() && std::filesystem::exists(directory + name)) return directory + name;
  return "";
}

}  // namespace trireme
