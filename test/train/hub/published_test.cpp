// Published models from scripts/make_published_golden.py: imported, they compute what transformers
// computes, and are exported with the same bits.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "data/shard/shard.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/tokenizer_files.h"
#include "test/catch.h"
#include "test/reference/golden.h"
#include "test/train/golden.h"
#include "test/train/workplace.h"
#include "train/hub/exported_tokenizer.h"
#include "train/hub/init_from.h"
#include "train/hub/published_config.h"
#include "train/hub/published_weights.h"
#include "train/run/resume.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const char* const kLayouts[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

std::vector<float> floats_of(const PublishedWeights& weights, const std::string& name) {
  int64_t count = 1;
  for (const int64_t size : weights.find(name)->shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  weights.read(name, 0, count, values.data());
  return values;
}

// A run of one step that leaves weights where they are.
std::vector<std::string> still(const std::string& name, const std::string& layout) {
  std::vector<std::string> settings{"train.name=" + name, "train.init_from=" + golden_of(layout),
                                    "train.steps=1",      "train.lr=1e-30",
                                    "train.warmup=0",     "train.decay=0",
                                    "kernels.dtype=f32"};
  const Ended printed = run_trireme(".", {"model", "config", golden_of(layout)});
  succeed(printed);
  std::istringstream lines(printed.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  REQUIRE(line == "model:");
  while (std::getline(lines, line) && line != "data:") {
    const size_t colon = line.find(": ");
    settings.push_back("model." + line.substr(2, colon - 2) + "=" + line.substr(colon + 2));
  }
  CHECK_THAT(printed.out, ContainsSubstring("\n  init_from: \"" + golden_of(layout) + "\"\n"));
  return settings;
}

}  // namespace

TEST_CASE("published weights compute the logits that transformers computes") {
  for (const char* layout : kLayouts) {
    INFO(layout);
    RunConfig config;
    config.train.init_from = golden_of(layout);
    config.model = read_published_config(golden_of(layout) + "/config.json");
    const PublishedWeights expected(golden_of(layout) + "/expected.safetensors");
    const std::vector<float> told = floats_of(expected, "tokens");
    const int64_t rows = expected.find("tokens")->shape[0], context = expected.find("tokens")->shape[1], n = rows * context;
    config.model.context = config.model.family == Family::gpt2 ? config.model.context : context;

    Device device(Place::cpu, read_cpu_facts());
    const int64_t room = 8 << 20;
    Arenas arenas(device, ArenaSizes{room, room, room, room, room});
    Stage stage(config.model, StageShape{.rows = rows, .context = context, .dtype = Dtype::f32}, arenas, device.compute());
    std::vector<TensorSlice> slices;
    for (const Parameter& parameter : stage.parameters())
      for (const auto& [name, piece] : pieces_of(parameter.spec, parameter.weight)) {
        TensorSlice& slice = slices.emplace_back(TensorSlice{.name = name, .global_shape = {}, .offset = {}, .local = piece});
        for (int d = 0; d < piece.dims(); ++d) slice.global_shape.push_back(piece.dim(d)), slice.offset.push_back(0);
      }
    init_from(config, slices, kAlone);

    std::vector<int32_t> tokens(told.begin(), told.end()), positions, starts(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(i % context));
    const auto ids = [&](std::vector<int32_t>& of) { return Tensor(of.data(), Dtype::i32, Place::cpu, {n}); };
    const Microbatch batch{.rows = rows,
                           .context = context,
                           .tokens = ids(tokens),
                           .positions = ids(positions),
                           .targets = ids(tokens),
                           .document_start = ids(starts)};
    std::vector<float> logits(static_cast<size_t>(n * config.model.vocab));
    stage.forward(device.compute(), batch);
    stage.logits(device.compute(), batch, Tensor(logits.data(), Dtype::f32, Place::cpu, {n, config.model.vocab}));
    CHECK(relative_error(logits, floats_of(expected, "logits")) < 1e-5);
  }
}

TEST_CASE("a model's published config is read as the model it was written from") {
  for (const char* layout : kLayouts) {
    INFO(layout);
    const Scratch scratch;
    const ModelConfig model = read_published_config(golden_of(layout) + "/config.json");
    std::ofstream(scratch / "config.json") << published_config(model, {.begin = "1", .end = "[2, 3]"}, "float32");
    RunConfig before, after;
    before.model = model;
    after.model = read_published_config(scratch / "config.json");
    CHECK(differences(before, after).empty());
  }
}

TEST_CASE("a Mistral without a window keeps its name") {
  const Scratch scratch;
  std::string json = read_text(golden_of("mistral") + "/config.json");
  const size_t at = json.find("\"sliding_window\": ");
  REQUIRE(at != std::string::npos);
  json.replace(at, json.find_first_of(",}\n", at) - at, "\"sliding_window\": null");
  write_text(scratch / "config.json", json);
  const ModelConfig model = read_published_config(scratch / "config.json");
  CHECK(model.window == 0);
  CHECK_THAT(published_config(model, {}, "float32"), ContainsSubstring("LlamaForCausalLM"));
  const std::string same = published_config(model, {}, "float32", scratch / "config.json");
  CHECK_THAT(same, ContainsSubstring("MistralForCausalLM") && ContainsSubstring("\"sliding_window\": null"));
  CHECK_THAT(published_config(model, {}, "float32", golden_of("llama") + "/config.json"), ContainsSubstring("LlamaForCausalLM"));
}

TEST_CASE("config.json files as they are published are the models of configs/") {
  const std::pair<const char*, const char*> published[] = {
      {"gpt2-124m", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
        "summary_activation": null, "vocab_size": 50257})"},
      {"llama3-1b", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})"},
      {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
        "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
        "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true, "use_sliding_window": false,
        "vocab_size": 151936})"}};
  const Scratch scratch;
  for (const auto& [name, json] : published) {
    INFO(name);
    write_text(scratch / "config.json", json);
    const RunConfig ours = read_config(std::string(TRIREME_SOURCE) + "/configs/" + name + ".yaml", {}, Purpose::plan);
    RunConfig theirs = ours;
    theirs.model = read_published_config(scratch / "config.json");
    for (const std::string& difference : differences(theirs, ours)) CHECK(difference.starts_with("model.context: "));
  }
  write_text(scratch / "config.json", R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": false, "vocab_size": 32000})");
  const ModelConfig mistral = read_published_config(scratch / "config.json");
  CHECK((mistral.window == 4096 && mistral.head_size == 128 && mistral.kv_heads == 8 && !mistral.tied && !mistral.qkv_bias));
  write_text(scratch / "config.json", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
      "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
      "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");
  const ModelConfig qwen = read_published_config(scratch / "config.json");
  CHECK((qwen.window == 0 && qwen.head_size == 64 && qwen.kv_heads == 2 && qwen.tied && qwen.qkv_bias && !qwen.qk_norm));
}

TEST_CASE("published weights come in and go out with their bits, from one rank and from a mesh of eight") {
  const Workplace place;
  for (const char* layout : kLayouts) {
    INFO(layout);
    const std::string one = std::string(layout) + "-1", eight = std::string(layout) + "-8";
    auto settings = still(one, layout);
    const Ended run = place.train(settings);
    succeed(run);
    CHECK_THAT(run.out, ContainsSubstring("weights from " + golden_of(layout)));
    const auto exported = [&](const std::string& name) {
      succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/" + name, name}));
      return place.scratch / (name + "/model.safetensors");
    };
    const PublishedWeights before(golden_of(layout)), after(exported(one));
    REQUIRE(after.names() == before.names());
    for (const std::string& name : before.names()) {
      CHECK(after.find(name)->shape == before.find(name)->shape);
      CHECK(floats_of(after, name) == floats_of(before, name));
    }
    if (std::string(layout) == "mistral" || std::string(layout) == "qwen2") continue;
    settings[0] = "train.name=" + eight;
    for (const char* key : {"parallel.tp=2", "parallel.pp=2", "train.batch=4", "train.microbatch=2"}) settings.push_back(key);
    succeed(place.train(settings, 8));
    CHECK(read_text(exported(eight)) == read_text(place.scratch / (one + "/model.safetensors")));
  }
}

TEST_CASE("an export warns if transformers' AutoTokenizer would read its tokenizer as another") {
  const Workplace place;
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";
  const std::string pieces = std::string(TRIREME_SOURCE) + "/test/fuzz/corpus/tokenizer/bpe.model";
  const auto told = [&](const std::string& layout, const std::string& tokenizer) {
    const Ended ended =
        run_trireme(place.scratch.path(), {"model", "export", "runs/" + layout, layout, "--replace", "--tokenizer", tokenizer});
    succeed(ended);
    return ended.err;
  };
  for (const std::string layout : {"llama", "mistral", "qwen2"}) succeed(place.train(still(layout, layout)));
  CHECK_THAT(told("mistral", pieces), ContainsSubstring("LlamaTokenizer"));
  CHECK(told("llama", pieces).empty());
  CHECK_THAT(told("qwen2", "bytes"), ContainsSubstring("PreTrainedTokenizerFast"));
  CHECK_THAT(told("qwen2", goldens + "gpt2.json"), ContainsSubstring("PreTrainedTokenizerFast"));
  CHECK(told("qwen2", goldens + "qwen2.json").empty());
  CHECK(told("llama", goldens + "gpt2.json").empty());
}

TEST_CASE("a vocabulary and its merges are exported as a tokenizer.json, ranks not at all") {
  const Workplace place;
  succeed(place.train(still("a", "llama")));
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/", out = place.scratch / "out";
  const auto exported = [&](const std::string& tokenizer) {
    const Ended ended =
        run_trireme(place.scratch.path(), {"model", "export", "runs/a", "out", "--replace", "--tokenizer", tokenizer});
    succeed(ended);
    return ended.err;
  };
  const auto whole = Json::parse(read_text(goldens + "gpt2.json"));
  write_text(place.scratch / "vocab.json", whole["model"]["vocab"].dump());
  std::string merges;
  for (const auto& merge : whole["model"]["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write_text(place.scratch / "merges.txt", merges);
  CHECK(exported("vocab.json").empty());
  const auto written = Json::parse(read_text(out + "/tokenizer.json"));
  for (const char* key : {"vocab", "merges"}) CHECK(written["model"][key].size() == whole["model"][key].size());
  const std::string text = "Where are 12 rowers, and\n\ttheir oars?";
  const Ended ids = run_trireme(".", {"tokenizer", "encode", out + "/tokenizer.json", text});
  CHECK(ids.out == run_trireme(".", {"tokenizer", "encode", goldens + "gpt2.json", text}).out);
  CHECK(std::ranges::count(ids.out, ' ') > 10);
  CHECK_THAT(read_text(out + "/tokenizer_config.json"), ContainsSubstring("<|endoftext|>"));
  CHECK_THAT(read_text(out + "/config.json"), ContainsSubstring("\"eos_token_id\": 0"));

  write_text(place.scratch / "ranks.model", read_text(goldens + "cl100k.tiktoken"));
  CHECK_THAT(exported("ranks.model@cl100k"), ContainsSubstring("tiktoken ranks have no tokenizer.json"));
  CHECK_FALSE(fs::exists(out + "/tokenizer.json"));
  CHECK_FALSE(fs::exists(out + "/tokenizer.model"));
  CHECK_THAT(read_text(out + "/config.json"), ContainsSubstring("\"eos_token_id\": 480"));
}

TEST_CASE("a tokenizer.json adds no token to a text in the export of a model trained from scratch, as in training") {
  const Workplace place;
  const Json byte_level{{"type", "ByteLevel"}, {"trim_offsets", false}};
  const Json adds{{"type", "TemplateProcessing"}, {"single", Json::array({{{"SpecialToken", {{"id", "<|end_of_text|>"}}}}})}};
  const auto exported = [&](const std::string& run, const Json& post_processor) {
    Json json = Json::parse(read_text(std::string(TRIREME_SOURCE) + "/test/data/goldens/llama3.json"));
    json["post_processor"] = post_processor;
    write_text(place.scratch / "tokenizer.json", json.dump());
    succeed(
        run_trireme(place.scratch.path(), {"model", "export", "runs/" + run, "out", "--replace", "--tokenizer", "tokenizer.json"}));
    const Json copy = Json::parse(read_text(place.scratch / "out/tokenizer.json"));
    CHECK(copy["model"] == json["model"]);
    return copy["post_processor"];
  };
  const Json both{{"type", "Sequence"}, {"processors", Json::array({byte_level, adds})}};
  succeed(place.train({"train.steps=1", "train.warmup=0", "train.eval_every=0"}));
  CHECK(exported("tiny", both) == Json{{"type", "Sequence"}, {"processors", Json::array({byte_level})}});
  CHECK(exported("tiny", adds).is_null());
  CHECK(exported("tiny", {{"type", "Sequence"}, {"processors", Json::array({adds})}}).is_null());
  CHECK(exported("tiny", byte_level) == byte_level);
  succeed(place.train(still("continued", "llama")));
  CHECK(exported("continued", both) == both);
}

TEST_CASE("an exported tokenizer.json begins texts as most documents of the training data begin") {
  const Scratch scratch;
  const std::string golden = std::string(TRIREME_SOURCE) + "/test/data/goldens/llama3.json", shard = scratch / "a.h5";
  const Json begin{{"SpecialToken", {{"id", "<|end_of_text|>"}, {"type_id", 0}}}},
      words{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto adds = [](std::vector<Json> parts) {
    return Json{{"type", "TemplateProcessing"}, {"single", Json(Json::Array(std::move(parts)))}};
  };
  fs::create_directory(scratch / "out");
  RunConfig config;
  config.data.train = {shard};
  const auto exported = [&](const Json& processor) {
    Json json = Json::parse(read_text(golden));
    json["post_processor"] = processor;
    write_text(scratch / "tokenizer.json", json.dump());
    SpecialTokens tokens;
    const std::string doubt = write_tokenizer(config, scratch / "tokenizer.json", scratch / "out", tokens).doubt;
    return std::pair(Json::parse(read_text(scratch / "out/tokenizer.json")).value("post_processor", Json()), doubt);
  };
  const std::string its = open_tokenizer(golden)->fingerprint();
  const auto write_firsts = [&](const std::vector<int32_t>& firsts, const std::string& tokenizer) {
    std::vector<int32_t> tokens;
    std::vector<int64_t> starts;
    for (const int32_t first : firsts) {
      starts.push_back(std::ssize(tokens));
      tokens.insert(tokens.end(), {first, 7, 8});
    }
    write_shard(shard, {tokenizer, 480, 0, 9}, tokens, starts);
  };
  const auto exported_with = [&](const std::vector<int32_t>& firsts, const Json& processor) {
    write_firsts(firsts, its);
    const auto [left, doubt] = exported(processor);
    CHECK(doubt.empty());
    return left;
  };
  const Json adds_begin = adds({begin, words});
  CHECK(exported_with({0, 0, 5}, adds_begin) == adds_begin);
  const Json sequence{{"type", "Sequence"}, {"processors", Json::array({adds_begin})}};
  CHECK(exported_with({0}, sequence) == sequence);
  CHECK(exported_with({0, 5, 5}, adds_begin).is_null());
  CHECK(exported_with({0, 5}, adds_begin).is_null());
  CHECK(exported_with({0, 0}, adds({begin, words, begin})).is_null());
  CHECK(exported_with({0, 0}, adds({words})).is_null());
  std::vector<int32_t> many(1000, 5);
  std::fill_n(many.begin(), 600, 0);
  CHECK(exported_with(many, adds_begin) == adds_begin);

  const auto doubted = [&](const std::string& why) {
    const auto [left, doubt] = exported(adds_begin);
    CHECK(left.is_null());
    CHECK_THAT(doubt, ContainsSubstring("puts no <|end_of_text|> in front of a text") && ContainsSubstring(why));
  };
  write_firsts({0, 0, 0}, "bpe-480-0");
  doubted("a.h5: was made with tokenizer bpe-480-0, not with " + its);
  fs::remove(shard);
  doubted("a.h5");
  CHECK(exported(nullptr).second.empty());
}

TEST_CASE("an exported tokenizer.json begins texts as that of the model that the run began with, if it is the same tokenizer") {
  const Scratch scratch;
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/";
  const Json adds{{"type", "TemplateProcessing"}, {"single", Json::array({{{"SpecialToken", {{"id", "<|end_of_text|>"}}}}})}};
  for (const char* name : {"out", "origin"}) fs::create_directory(scratch / name);
  RunConfig config;
  config.train.init_from = scratch / "origin";
  const auto exported = [&](const std::string& origin, const Json& of_origin, const Json& published) {
    const auto write = [&](const std::string& path, const std::string& tokenizer, const Json& processor) {
      Json json = Json::parse(read_text(goldens + tokenizer));
      json["post_processor"] = processor;
      write_text(path, json.dump());
    };
    if (!origin.empty()) write(scratch / "origin/tokenizer.json", origin, of_origin);
    write(scratch / "tokenizer.json", "llama3.json", published);
    SpecialTokens tokens;
    CHECK(write_tokenizer(config, scratch / "tokenizer.json", scratch / "out", tokens).doubt.empty());
    return Json::parse(read_text(scratch / "out/tokenizer.json")).value("post_processor", Json());
  };
  CHECK(exported("", nullptr, adds) == adds);
  CHECK(exported("llama3.json", nullptr, adds).is_null());
  CHECK(exported("llama3.json", adds, nullptr) == adds);
  CHECK(exported("llama3.json", adds, adds) == adds);
  CHECK(exported("qwen2.json", nullptr, adds) == adds);
  write_text(scratch / "origin/tokenizer.json", "{}");
  CHECK(exported("", nullptr, adds) == adds);
}

TEST_CASE("a model too large for one file goes into several, with an index, and comes back") {
  const Workplace place;
  succeed(place.train(still("a", "llama")));
  const std::string out = place.scratch / "out";
  const auto exported = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"model", "export", "runs/a", "out"};
    words.insert(words.end(), more.begin(), more.end());
    return run_trireme(place.scratch.path(), words);
  };
  succeed(exported({"--dtype", "bf16"}));
  const Ended again = exported({});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, ContainsSubstring("the output already holds a model: choose another directory, or give --replace"));
  write_text(out + "/notes", "mine");
  const Ended nowhere = exported({"--replace", "--tokenizer", "no.json"});
  CHECK(nowhere.code != 0);
  CHECK_THAT(nowhere.err, ContainsSubstring("no.json") && ContainsSubstring("--tokenizer none"));
  CHECK(PublishedWeights(out).find("lm_head.weight")->type == "BF16");  // still there
  CHECK_FALSE(fs::exists(out + "/.partial"));
  const std::string models = std::string(TRIREME_SOURCE) + "/test/fuzz/corpus/tokenizer/";
  const Ended pieces = exported({"--replace", "--tokenizer", models + "bpe.model"});
  succeed(pieces);
  CHECK(pieces.err == "");
  CHECK(read_text(out + "/tokenizer.model") == read_text(models + "bpe.model"));
  CHECK_FALSE(fs::exists(out + "/tokenizer.json"));
  CHECK_THAT(read_text(out + "/tokenizer_config.json"), ContainsSubstring("LlamaTokenizer") && ContainsSubstring("</s>"));
  CHECK_THAT(read_text(out + "/config.json"), ContainsSubstring("\"eos_token_id\": 2"));
  CHECK_THAT(exported({"--replace", "--tokenizer", models + "unigram.model"}).err, ContainsSubstring("unigram"));
  CHECK(fs::exists(out + "/tokenizer.model"));
  CHECK_FALSE(fs::exists(out + "/tokenizer_config.json"));
  succeed(exported({"--file-size", "0.03MB", "--replace"}));
  CHECK_FALSE(fs::exists(out + "/tokenizer.model"));
  CHECK_FALSE(fs::exists(out + "/model.safetensors"));
  CHECK_FALSE(fs::exists(out + "/.partial"));
  CHECK(read_text(out + "/notes") == "mine");
  CHECK(fs::exists(out + "/model-00001-of-00005.safetensors"));
  const PublishedWeights before(golden_of("llama")), after(out);
  REQUIRE(after.names() == before.names());
  for (const std::string& name : before.names()) CHECK(floats_of(after, name) == floats_of(before, name));
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    CHECK(fs::exists(out + "/" + file));
  CHECK_THAT(read_text(out + "/config.json"), ContainsSubstring("\"eos_token_id\": 256"));
  auto settings = still("b", "llama");
  settings[1] = "train.init_from=" + out;
  succeed(place.train(settings));
  CHECK(place.differ("a", "b") == 0);

  std::string slice;
  for (const auto& entry : fs::recursive_directory_iterator(place.scratch / "runs/a/checkpoints"))
    if (entry.path().extension() == ".h5") slice = entry.path();
  std::string bytes = read_text(slice);
  bytes[bytes.size() / 3] = static_cast<char>(bytes[bytes.size() / 3] ^ 8);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
  bytes[bytes.size() - bytes.size() / 8] = static_cast<char>(bytes[bytes.size() - bytes.size() / 8] ^ 8);
  write_text(slice, bytes);
  const std::string index = read_text(out + "/model.safetensors.index.json");
  CHECK(exported({"--replace", "--dtype", "bf16"}).code == 4);
  CHECK(read_text(out + "/model.safetensors.index.json") == index);
  CHECK(PublishedWeights(out).names() == before.names());
}

TEST_CASE("the tokenizer of a published model is its SentencePiece model, which tokenizer.json may have been made of") {
  const Scratch scratch;
  const std::string sources = std::string(TRIREME_SOURCE) + "/test/", json = scratch / "tokenizer.json",
                    model = scratch / "tokenizer.model";
  CHECK(published_tokenizer("").empty());
  CHECK(published_tokenizer(scratch.path()).empty());
  write_text(json, R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})");
  CHECK(published_tokenizer(scratch.path()) == json);
  write_text(model, read_text(sources + "fuzz/corpus/tokenizer/bpe.model"));
  CHECK(published_tokenizer(scratch.path()) == model);
  fs::remove(json);
  CHECK(published_tokenizer(scratch.path()) == model);
  // As Llama 3's directories, and a clone without Git LFS.
  write_text(json, read_text(sources + "data/goldens/llama3.json"));
  for (const std::string& other : {read_text(sources + "data/goldens/cl100k.tiktoken"),
                                   std::string("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")}) {
    write_text(model, other);
    CHECK(published_tokenizer(scratch.path()) == json);
  }
  fs::remove(json);
  CHECK(published_tokenizer(scratch.path()) == model);
}

TEST_CASE("tokens that a model has beside its SentencePiece model are named") {
  const Scratch scratch;
  const std::string model = scratch / "tokenizer.model", added = scratch / "added_tokens.json";
  CHECK(doubt_published_tokenizer("").empty());
  CHECK(doubt_published_tokenizer(scratch.path()).empty());
  write_text(model, read_text(std::string(TRIREME_SOURCE) + "/test/fuzz/corpus/tokenizer/bpe.model"));
  const size_t pieces = read_sentencepiece_model(model).pieces.size();
  const std::string begin = text(model, ": has ", pieces, " pieces, and lacks tokens that the model was trained with: "),
                    end = "; in texts and chats they become their characters";
  const auto id = [&](size_t beyond) { return std::to_string(pieces + beyond); };
  CHECK(doubt_published_tokenizer(scratch.path()).empty());
  write_text(scratch / "config.json", R"({"eos_token_id": 2})");
  write_text(added, R"({"<s>": 1})");
  write_text(scratch / "tokenizer_config.json", R"({"added_tokens_decoder": {"2": {"content": "</s>"}}})");
  CHECK(doubt_published_tokenizer(scratch.path()).empty());
  write_text(added, "{\"<|im_end|>\": " + id(0) + "}");
  CHECK(doubt_published_tokenizer(scratch.path()) == begin + "<|im_end|> (" + id(0) + ")" + end);
  write_text(scratch / "config.json", "{\"eos_token_id\": [2, " + id(0) + ", " + id(7) + "]}");
  write_text(scratch / "tokenizer_config.json", "{\"added_tokens_decoder\": {\"" + id(1) + "\": {\"content\": \"<|im_start|>\"}}}");
  CHECK(doubt_published_tokenizer(scratch.path()) ==
        begin + "<|im_end|> (" + id(0) + "), <|im_start|> (" + id(1) + "), eos_token_id (" + id(7) + ")" + end);
  std::string many = "{";
  for (size_t i = 0; i < 12; ++i) many += text(i == 0 ? "" : ", ", "\"<", i, ">\": ", pieces + 8 + i);
  write_text(added, many + "}");
  CHECK_THAT(doubt_published_tokenizer(scratch.path()), ContainsSubstring(", <4> (" + id(12) + ") and 7 more; in texts"));
  write_text(added, "no JSON");
  CHECK_THAT(doubt_published_tokenizer(scratch.path()), ContainsSubstring("<|im_start|>"));
  write_text(model, read_text(std::string(TRIREME_SOURCE) + "/test/data/goldens/cl100k.tiktoken"));  // ranks
  CHECK(doubt_published_tokenizer(scratch.path()).empty());
}

TEST_CASE("weights of another model are refused with every key that differs, on all ranks") {
  const Workplace place;
  auto settings = still("x", "qwen3");
  for (const char* key : {"model.width=64", "model.layers=3", "model.qk_norm=false"}) settings.push_back(key);
  for (const int ranks : {1, 2}) {
    const Ended ended = place.train(settings, ranks);
    CHECK(ended.code == 2);
    for (const char* key :
         {"model.layers: 2 -> 3", "model.width: 32 -> 64", "model.qk_norm: true -> false", "trireme model config"})
      CHECK_THAT(ended.err, ContainsSubstring(key));
  }
  settings = still("x", "qwen3");
  settings[1] = "train.init_from=" + (place.scratch / "nothing");
  const Ended ended = place.train(settings);
  CHECK(ended.code != 0);
  CHECK_THAT(ended.err, ContainsSubstring("nothing/config.json: cannot be opened"));
}

TEST_CASE("what a published config says and is not computed here is refused by name") {
  const Scratch scratch;
  const auto refusal = [&](const std::string& layout, const Json& change) -> std::string {
    Json config = Json::parse(read_text(golden_of(layout) + "/config.json"));
    config.update(change);
    std::ofstream(scratch / "config.json") << config;
    try {
      read_published_config(scratch / "config.json");
      return "";
    } catch (const DataError& e) {
      return e.what();
    }
  };
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"llama", {{"model_type", "mamba"}}, "model_type: 'mamba' is not read here"},
      {"llama", {{"model_type", 7}}, "model_type: must be a string"},
      {"llama", {{"attention_bias", true}}, "attention_bias: is not supported: Trireme does not compute it"},
      {"llama", {{"mlp_bias", true}}, "mlp_bias: is not supported: Trireme does not compute it"},
      {"llama", {{"hidden_act", "gelu"}}, "hidden_act: 'gelu' is not computed here"},
      {"llama", {{"hidden_size", 0}}, "hidden_size: must be a whole number above 0"},
      {"llama", {{"hidden_size", "32"}}, "hidden_size: must be a whole number above 0"},
      {"llama", {{"num_hidden_layers", nullptr}}, "num_hidden_layers: must be a whole number above 0"},
      {"llama", {{"num_key_value_heads", 3}}, "kv_heads: must divide model.heads = 4"},
      {"llama", {{"rope_parameters", {{"rope_type", "yarn"}}}}, "rope_type: 'yarn' is not computed here"},
      {"llama", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "partial_rotary_factor: all of a head is turned here"},
      {"llama", {{"rms_norm_eps", -1}}, "rms_norm_eps: must be a number, at least 0"},
      {"llama", {{"tie_word_embeddings", 1}}, "tie_word_embeddings: must be true or false"},
      {"llama", {{"quantization_config", Json::object()}}, "quantization_config: weights must be floats"},
      {"gpt2", {{"activation_function", "relu"}}, "activation_function: 'relu' is not computed here"},
      {"gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights: must be true"},
      {"gpt2",
       {{"scale_attn_by_inverse_layer_idx", true}},
       "scale_attn_by_inverse_layer_idx: is not supported: Trireme does not compute it"},
      {"qwen3",
       {{"use_sliding_window", true}, {"sliding_window", 4}, {"layer_types", {"full_attention", "sliding_attention"}}},
       "use_sliding_window: a window for some of the layers"},
      {"qwen2",
       {{"use_sliding_window", true}, {"sliding_window", 4}, {"layer_types", nullptr}, {"max_window_layers", 1}},
       "use_sliding_window: a window for some of the layers"},
  };
  for (const auto& [layout, change, message] : cases) {
    INFO(change);
    CHECK_THAT(refusal(layout, change), ContainsSubstring(message));
  }
  const std::string both = refusal("llama", {{"mlp_bias", true}, {"hidden_act", "relu"}});
  CHECK_THAT(both, ContainsSubstring("mlp_bias") && ContainsSubstring("hidden_act"));
  CHECK(refusal("qwen2", {{"use_sliding_window", true}, {"sliding_window", 4}, {"layer_types", nullptr}, {"max_window_layers", 0}})
            .empty());
  CHECK(read_published_config(scratch / "config.json").window == 4);
}

// Expected values are what LlamaConfig and LlamaRotaryEmbedding of transformers 5.24 make of the
// same config.json.
TEST_CASE("RoPE and an epsilon of 0 are read from a config.json as transformers reads them") {
  const Scratch scratch;
  const auto read = [&](const Json& change) {
    Json config = Json::parse(read_text(golden_of("llama") + "/config.json"));
    config.update(change);
    std::ofstream(scratch / "config.json") << config;
    return read_published_config(scratch / "config.json");
  };
  const Json scaling{{"rope_type", "llama3"}, {"factor", 4.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  Json of_32 = scaling, parameters{{"rope_type", "default"}, {"rope_theta", 100.0}};
  of_32["original_max_position_embeddings"] = 32;
  // Without the original context, it is max_position_embeddings.
  const ModelConfig bare = read({{"rope_parameters", nullptr}, {"rope_theta", 500.0}, {"rope_scaling", scaling}});
  CHECK(bare.rope_scaling == RopeScaling::llama3);
  CHECK((bare.rope_original_context == 64 && bare.theta == 500));
  // If there are both, rope_scaling counts, with the theta beside it.
  const ModelConfig both = read({{"rope_theta", 500.0}, {"rope_parameters", parameters}, {"rope_scaling", of_32}});
  CHECK(both.rope_scaling == RopeScaling::llama3);
  CHECK((both.rope_original_context == 32 && both.theta == 500));
  for (const Json& nothing : {Json(nullptr), Json::object()}) {
    const ModelConfig one = read({{"rope_theta", 500.0}, {"rope_parameters", parameters}, {"rope_scaling", nothing}});
    CHECK((one.rope_scaling == RopeScaling::none && one.theta == 100));
  }
  CHECK(read({{"rms_norm_eps", 0.0}}).norm_eps == 0);
}

TEST_CASE("models that no layout has are refused when they are to be exported") {
  ModelConfig model;
  model.resolve();
  CHECK_NOTHROW(published_weights(model));
  model.qk_norm = model.qkv_bias = true;
  CHECK_THROWS_WITH(published_weights(model), ContainsSubstring("model.qkv_bias: no published layout has it beside model.qk_norm"));
  ModelConfig gpt2{.family = Family::gpt2, .window = 4};
  gpt2.head_size = 32;
  gpt2.resolve();
  CHECK_THROWS_WITH(published_weights(gpt2), ContainsSubstring("model.head_size") && ContainsSubstring("model.window"));
}

TEST_CASE("model config prints settings for fine-tuning, under the directory's name") {
  const Scratch scratch;
  std::filesystem::copy(golden_of("llama"), scratch / "my llama");
  const Ended printed = run_trireme(scratch.path(), {"model", "config", "my llama/"});
  succeed(printed);
  write_text(scratch / "x.yaml", printed.out);
  const RunConfig config = read_config(scratch / "x.yaml", {});
  CHECK(config.train.lr == 5e-5);
  CHECK(config.train.warmup == 30);
  CHECK(config.train.batch == 64);
  CHECK(config.train.name == "my llama");
  CHECK(config.train.init_from == "my llama/");
  CHECK(config.model.context <= 4096);
}

TEST_CASE("model config of a model that is not here names the command that fetches or converts it") {
  const Scratch scratch;
  const auto refusal = [&](const std::string& directory) {
    const Ended ended = run_trireme(scratch.path(), {"model", "config", directory});
    CHECK(ended.code == 2);
    return ended.err;
  };
  CHECK(refusal("gpt2") == "gpt2: no such directory; fetch it with 'hf download gpt2 --local-dir models/gpt2'\n");
  CHECK(refusal("meta-llama/Llama-3.1-8B") ==
        "meta-llama/Llama-3.1-8B: no such directory; fetch it with "
        "'hf download meta-llama/Llama-3.1-8B --local-dir models/Llama-3.1-8B'\n");
  CHECK(refusal("/no/such") == "/no/such: no such directory\n");
  std::filesystem::create_directory(scratch / "old");
  CHECK(refusal("old") == "old: has no config.json, so it is not a published model\n");
  std::filesystem::copy(golden_of("llama") + "/config.json", scratch / "old/config.json");
  write_text(scratch / "old/pytorch_model.bin", "");
  CHECK_THAT(refusal("old"), ContainsSubstring("old: has pytorch_model.bin but no safetensors; convert it with python: "));
}

}  // namespace trireme
