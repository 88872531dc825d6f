#include "train/hub/published_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/hub_name.h"
#include "base/json.h"
#include "base/json_file.h"
#include "checkpoint/safetensors.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "train/hub/published_layout.h"
#include "train/hub/published_reading.h"

namespace trireme {

namespace {

void read_gpt2(PublishedReading& in, ModelConfig& model) {
  model.family = Family::gpt2;
  model.layers = in.size("n_layer");
  model.width = in.size("n_embd");
  model.heads = in.size("n_head");
  model.ffn = in.size("n_inner", 4 * model.width);
  model.context = in.size("n_positions");
  model.norm_eps = in.size_or_zero("layer_norm_epsilon", 1e-5);
  const std::string activation = in.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    in.refuse("activation_function", "'" + activation + "' is not computed here, but gelu_new is");
  in.must_be("scale_attn_weights", true);
  in.must_be("scale_attn_by_inverse_layer_idx", false);
  in.must_be("add_cross_attention", false);
}

void read_rope(PublishedReading& in, ModelConfig& model) {
  // Since version 5 of transformers all of it stands in rope_parameters. If a config has both, an
  // object of rope_scaling that is not empty replaces all of them.
  const bool newer = in.has("rope_parameters") && in["rope_parameters"].is_object();
  const bool scaled = in.has("rope_scaling") && in["rope_scaling"].is_object() && !in["rope_scaling"].empty();
  const Json rope = scaled ? in["rope_scaling"] : newer ? in["rope_parameters"] : Json::object();
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
  model.rope_original_context =
      static_cast<int64_t>(in.number(rope, "original_max_position_embeddings", static_cast<double>(model.context)));
}

// Windows of Qwen, whose layers may differ: layers from max_window_layers on have one, or layer_types lists them.
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

void read_llama(PublishedReading& in, PublishedLayout layout, ModelConfig& model) {
  model.family = Family::llama;
  model.layers = in.size("num_hidden_layers");
  model.width = in.size("hidden_size");
  model.heads = in.size("num_attention_heads");
  model.kv_heads =
      in.size("num_key_value_heads", layout == PublishedLayout::mistral && !in.says("num_key_value_heads") ? 8 : model.heads);
  model.head_size = in.size("head_dim", layout == PublishedLayout::qwen3 ? 128 : std::max<int64_t>(1, model.width / model.heads));
  model.ffn = in.size("intermediate_size");
  model.context = in.size("max_position_embeddings");
  model.norm_eps = in.size_or_zero("rms_norm_eps", 1e-6);
  model.qk_norm = layout == PublishedLayout::qwen3;
  model.qkv_bias = layout == PublishedLayout::qwen2;
  read_rope(in, model);
  if (const std::string activation = in.word("hidden_act", "silu"); activation != "silu")
    in.refuse("hidden_act", "'" + activation + "' is not computed here, but silu is");
  in.must_be("attention_bias", false);
  in.must_be("mlp_bias", false);
  if (layout == PublishedLayout::mistral && in.has("sliding_window")) model.window = in.size("sliding_window");
  if (layout == PublishedLayout::mistral && !in.says("sliding_window")) model.window = 4096;  // what transformers takes
  if (layout == PublishedLayout::qwen2 || layout == PublishedLayout::qwen3) read_window(in, model);
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

void put_llama(Json& json, PublishedLayout layout, const ModelConfig& model) {
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
  if (layout == PublishedLayout::llama || layout == PublishedLayout::qwen3) json["attention_bias"] = false;
  if (layout == PublishedLayout::llama) json["mlp_bias"] = false;
  if (layout == PublishedLayout::llama) return;
  json["sliding_window"] = model.window > 0 ? Json(model.window) : Json(nullptr);
  if (layout == PublishedLayout::mistral) return;
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

// Pieces of a SentencePiece model; nullopt for other files: Llama 3's tokenizer.model holds ranks, and one of a clone without Git
// LFS only a pointer.
std::optional<int64_t> count_pieces(const std::string& path) try {
  return std::ssize(read_sentencepiece_model(path).pieces);
} catch (const DataError&) {
  return std::nullopt;
}

// Null if the file is not there or cannot be read.
Json json_of_model(const std::string& path) try {
  constexpr JsonLimits kLimits{.bytes = 16 << 20, .values = 1'000'000};
  return std::filesystem::exists(path) ? read_json(path, kLimits, "tokens of a model") : Json();
} catch (const DataError&) {
  return nullptr;
}

// Tokens by id: those that files of a model add beside its tokenizer, and those that end its texts.
std::map<int64_t, std::string> tokens_named_in(const std::string& directory) {
  std::map<int64_t, std::string> tokens;
  const Json added = json_of_model(directory + "/added_tokens.json");
  if (added.is_object())
    for (const auto& [written, id] : added.members())
      if (id.is_integer()) tokens.emplace(id.get<int64_t>(), written);
  const Json decoder = json_of_model(directory + "/tokenizer_config.json").value_or_null("added_tokens_decoder");
  if (decoder.is_object())
    for (const auto& [id, token] : decoder.members()) {
      int64_t number = -1;
      std::from_chars(id.data(), id.data() + id.size(), number);
      if (const Json& written = token.value_or_null("content"); written.is_string()) tokens.emplace(number, written.string());
    }
  const Json ends = json_of_model(directory + "/config.json").value_or_null("eos_token_id");
  for (const Json& id : ends.is_array() ? ends.items() : Json::Array{ends})
    if (id.is_integer()) tokens.emplace(id.get<int64_t>(), "eos_token_id");
  return tokens;
}

}  // namespace

std::string published_config(const ModelConfig& model, const SpecialTokens& tokens, const std::string& dtype,
                             const std::string& like) {
  PublishedLayout layout = layout_of(model);
  const bool known = layout == PublishedLayout::llama && std::filesystem::exists(like);
  if (known && PublishedReading(like).word("model_type", "") == "mistral") layout = PublishedLayout::mistral;
  const LayoutNames& names = kPublishedLayouts[static_cast<size_t>(layout)];
  Json json;
  json["architectures"] = {names.architecture};
  json["model_type"] = names.type;
  json["vocab_size"] = model.vocab;
  if (names.layout == PublishedLayout::gpt2)
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

void require_published(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  if (!fs::exists(directory, unreadable)) {
    const std::string name = directory.substr(directory.rfind('/') + 1);
    throw ConfigError(
        directory + ": no such directory" +
        (may_be_hub_name(directory) ? "; fetch it with 'hf download " + directory + " --local-dir models/" + name + "'" : ""));
  }
  if (!fs::is_directory(directory, unreadable))
    throw ConfigError(directory + ": is not a directory; name the one with config.json");
  if (!fs::exists(directory + "/config.json", unreadable))
    throw ConfigError(directory + ": has no config.json, so it is not a published model");
  bool safetensors = false, pickled = false;
  for (const auto& entry : fs::directory_iterator(directory, unreadable)) {
    safetensors |= entry.path().extension() == ".safetensors";
    pickled |= entry.path().filename().string().starts_with("pytorch_model");
  }
  if (!safetensors && pickled)
    throw ConfigError(directory +
                      ": has pytorch_model.bin but no safetensors; convert it with python: " + conversion_code(directory));
}

ModelConfig read_published_config(const std::string& path) {
  PublishedReading in(path);
  const std::string type = in.word("model_type", "");
  const auto* const names = std::ranges::find(kPublishedLayouts, type, &LayoutNames::type);
  if (names == std::end(kPublishedLayouts)) {
    in.refuse("model_type", "'" + type + "' is not read here: gpt2, llama, mistral, qwen2 and qwen3 are");
    in.end();
  }
  ModelConfig model;
  model.vocab = in.size("vocab_size");
  model.tied = in.flag("tie_word_embeddings", names->layout == PublishedLayout::gpt2);
  model.init_std = in.number("initializer_range", 0.02);
  if (in.has("quantization_config")) in.refuse("quantization_config", "weights must be floats that were not quantized");
  if (names->layout == PublishedLayout::gpt2)
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
  if (directory.empty()) return "";
  const std::string json = directory + "/tokenizer.json", model = directory + "/tokenizer.model";
  const bool has_json = std::filesystem::exists(json);
  if (std::filesystem::exists(model) && (!has_json || count_pieces(model))) return model;
  return has_json ? json : "";
}

std::string doubt_published_tokenizer(const std::string& directory) {
  const std::string path = published_tokenizer(directory);
  const std::optional<int64_t> pieces = path.ends_with(".model") ? count_pieces(path) : std::nullopt;
  if (!pieces) return "";
  constexpr int64_t kMost = 8;
  const std::map<int64_t, std::string> tokens = tokens_named_in(directory);
  const auto first = tokens.lower_bound(*pieces);
  const int64_t count = std::distance(first, tokens.end());
  std::string names;
  for (auto token = first; token != tokens.end() && std::distance(first, token) < kMost; ++token)
    names += text(token == first ? "" : ", ", token->second, " (", token->first, ")");
  if (count > kMost) names += text(" and ", count - kMost, " more");
  if (count == 0) return "";
  return text(path, ": has ", *pieces, " pieces, and lacks tokens that the model was trained with: ", names,
              "; in texts and chats they become their characters");
}

}  // namespace trireme
