// train.init_from: which files are taken for a model's weights, and what of them each rank gets.
#include "train/hub/init_from.h"

#include <filesystem>
#include <map>

#include "checkpoint/safetensors.h"
#include "data/build/tokenizer_train.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/golden.h"
#include "train/hub/published_config.h"
#include "train/run/sources.h"

namespace trireme {
namespace {

using Values = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;  // shape and elements, by name

int64_t size_of(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t dim : shape) size *= dim;
  return size;
}

Values read_golden_weights(const std::string& layout) {
  const PublishedWeights weights(golden_of(layout));
  Values values;
  for (const std::string& name : weights.names()) {
    auto& [shape, elements] = values[name];
    shape = weights.find(name)->shape;
    elements.resize(static_cast<size_t>(size_of(shape)));
    weights.read(name, 0, size_of(shape), elements.data());
  }
  return values;
}

// A directory like the golden's, with these weights.
struct Rewritten {
  Scratch scratch;
  RunConfig config;

  Rewritten(const std::string& layout, const Values& values) {
    std::filesystem::copy_file(golden_of(layout) + "/config.json", scratch / "config.json");
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, value] : values) entries.push_back({name, value.first});
    SafetensorsWriter writer(scratch / "model.safetensors", entries, FloatType::f32);
    for (const auto& [name, value] : values) writer.append(value.second.data(), std::ssize(value.second));
    writer.commit();
    config.train.init_from = scratch.path();
    config.model = read_published_config(scratch / "config.json");
  }

  // Box [first, first + rows) x [column, column + cols) of one weight, out of memory of sevens.
  std::vector<float> box(const std::string& name, const std::vector<int64_t>& whole, int64_t first, int64_t rows,
                         int64_t column = 0, int64_t cols = 1) const {
    std::vector<float> values(static_cast<size_t>(rows * cols), 7);
    TensorSlice slice{.name = name, .global_shape = whole, .offset = {first}, .local = {}};
    if (whole.size() == 2) slice.offset.push_back(column);
    slice.local = whole.size() == 2 ? Tensor(values.data(), Dtype::f32, Place::cpu, {rows, cols})
                                    : Tensor(values.data(), Dtype::f32, Place::cpu, {rows});
    init_from(config, {slice}, kAlone);
    return values;
  }
  std::string refusal() const {
    try {
      init_from(config, {}, kAlone);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }
};

}  // namespace

TEST_CASE("each rank gets its box of a published weight, transposed or fused as that may be") {
  const Values golden = read_golden_weights("gpt2");
  const Rewritten from("gpt2", golden);
  const auto check = [&](const std::string& name, const std::vector<int64_t>& whole, auto expected) {
    for (const auto& [first, rows, column, cols] : {std::tuple(0, 32, 0, 32), {3, 7, 0, 32}, {5, 1, 4, 9}, {8, 16, 16, 16}}) {
      const auto values = from.box(name, whole, first, rows, column, cols);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) REQUIRE(values[static_cast<size_t>(r * cols + c)] == expected(first + r, column + c));
    }
  };
  const auto& attention = golden.at("transformer.h.1.attn.c_attn.weight").second;  // [32, 96]: in, then out of q, k and v
  check("layers.1.attention.q", {32, 32}, [&](int64_t out, int64_t in) { return attention[static_cast<size_t>(in * 96 + out)]; });
  check("layers.1.attention.v", {32, 32},
        [&](int64_t out, int64_t in) { return attention[static_cast<size_t>(in * 96 + 64 + out)]; });
  const auto& table = golden.at("transformer.wte.weight").second;
  check("embedding.tokens", {260, 32}, [&](int64_t row, int64_t c) { return table[static_cast<size_t>(row * 32 + c)]; });
  const auto& bias = golden.at("transformer.h.0.attn.c_attn.bias").second;
  const auto k = from.box("layers.0.attention.k_bias", {32}, 5, 20);
  CHECK(std::equal(k.begin(), k.end(), bias.begin() + 32 + 5));
  CHECK(from.box("adam_m/layers.0.attention.q", {32, 32}, 0, 2, 0, 32) == std::vector<float>(64, 7));
}

TEST_CASE("a vocabulary may be larger than the published one, positions fewer") {
  const Values golden = read_golden_weights("gpt2");
  Rewritten from("gpt2", golden);
  from.config.model.vocab = 264;
  from.config.model.context = 16;
  const auto rows = from.box("embedding.tokens", {264, 32}, 258, 6, 0, 32);
  CHECK(std::equal(rows.begin(), rows.begin() + 64, golden.at("transformer.wte.weight").second.begin() + 258 * 32));
  CHECK(std::vector(rows.begin() + 64, rows.end()) == std::vector<float>(128, 7));
  CHECK(from.box("embedding.tokens", {264, 32}, 261, 2, 3, 4) == std::vector<float>(8, 7));
  CHECK(from.box("embedding.positions", {16, 32}, 15, 1, 0, 32)[31] == golden.at("transformer.wpe.weight").second[15 * 32 + 31]);
  from.config.model.vocab = 100;
  from.config.model.context = 65;
  CHECK_THAT(from.refusal(), ContainsSubstring("model.vocab: 260 -> 100") && ContainsSubstring("model.context: 64 -> 65"));
}

TEST_CASE("shards of another tokenizer than the published one are doubted") {
  const Scratch scratch;
  write_text(scratch / "text.txt", "one two three one two one\n");
  const auto trained = [&](int64_t vocab) {
    return train_tokenizer({.inputs = {scratch / "text.txt"}, .vocab = vocab}, [](const TokenizerProgress&) {}).bpe;
  };
  RunConfig config;
  const auto doubts = [&](const Bpe& of_shards) {
    save_tokenizer_json(of_shards, scratch / "other.json");
    const auto tokenizer = open_tokenizer(scratch / "other.json");
    write_shard(scratch / "a.h5", {tokenizer->fingerprint(), tokenizer->vocab_size(), 0, 5}, std::vector<int32_t>(9, 65),
                std::vector<int64_t>{0});
    return doubt_tokenizer(config, Corpus({scratch / "a.h5"}, 4, false));
  };
  CHECK(doubts(trained(259)).empty());  // no published weights
  config.train.init_from = scratch.path();
  CHECK(doubts(trained(259)).empty());  // no tokenizer with them
  save_tokenizer_json(trained(259), scratch / "tokenizer.json");
  CHECK(doubts(trained(259)).empty());
  const auto told = doubts(trained(260));
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0],
             ContainsSubstring("warning: data.train: was made with tokenizer bpe-260-") && ContainsSubstring("with bpe-259-"));
  write_text(scratch / "tokenizer.json", "{}");
  CHECK_THAT(doubts(trained(260)).at(0), ContainsSubstring("warning: train.init_from: its tokenizer cannot be compared"));
}

TEST_CASE("names without their prefix, buffers, and a head that is the embedding are taken as they are meant") {
  const Values golden = read_golden_weights("gpt2");
  Values short_names;
  for (const auto& [name, value] : golden) short_names[name.substr(std::string("transformer.").size())] = value;
  short_names["h.0.attn.bias"] = {{1, 1, 4, 4}, std::vector<float>(16)};
  short_names["h.0.attn.masked_bias"] = {{1}, {1}};
  short_names["lm_head.weight"] = short_names.at("wte.weight");
  const Rewritten whole("gpt2", golden), from("gpt2", short_names);
  CHECK(from.box("layers.0.mlp.up", {128, 32}, 0, 128, 0, 32) == whole.box("layers.0.mlp.up", {128, 32}, 0, 128, 0, 32));
}

TEST_CASE("a head that is tied, but differs from the embedding in the files, is refused") {
  Values golden = read_golden_weights("qwen2");
  golden["lm_head.weight"] = golden.at("model.embed_tokens.weight");
  const Rewritten equal("qwen2", golden);
  CHECK(equal.box("embedding.tokens", {260, 32}, 3, 9, 0, 32).size() == 288);
  golden.at("lm_head.weight").second[5 * 32 + 17] += 1;
  const Rewritten other("qwen2", golden);
  CHECK(other.box("embedding.tokens", {260, 32}, 6, 9, 0, 32).size() == 288);  // another rank has the row
  CHECK(other.box("embedding.tokens", {260, 32}, 5, 1, 0, 17).size() == 17);
  CHECK_THROWS_WITH(other.box("embedding.tokens", {260, 32}, 5, 1, 16, 4),
                    ContainsSubstring("holds an lm_head.weight that differs from model.embed_tokens.weight"));
  golden["lm_head.weight"] = {{259, 32}, std::vector<float>(259 * 32)};
  CHECK_THROWS_WITH(Rewritten("qwen2", golden).box("embedding.tokens", {260, 32}, 0, 1, 0, 32), ContainsSubstring("differs"));
}

TEST_CASE("files that do not match their config.json are refused by the tensor's name") {
  const Values golden = read_golden_weights("llama");
  const auto refusal = [&](auto change) {
    Values changed = golden;
    change(changed);
    return Rewritten("llama", changed).refusal();
  };
  CHECK(refusal([](Values&) {}).empty());
  CHECK_THAT(refusal([](Values& v) {
               v["model.layers.0.mlp.router.weight"] = {{1}, {1}};
             }),
             ContainsSubstring("holds model.layers.0.mlp.router.weight, which is not part of the model in its config.json"));
  CHECK_THAT(refusal([](Values& v) { v["model.layers.2.input_layernorm.weight"] = v.at("model.norm.weight"); }),
             ContainsSubstring("holds model.layers.2.input_layernorm.weight"));
  CHECK_THAT(refusal([](Values& v) { v.erase("model.layers.1.mlp.up_proj.weight"); }),
             ContainsSubstring("holds no model.layers.1.mlp.up_proj.weight"));
  CHECK_THAT(refusal([](Values& v) { v.erase("lm_head.weight"); }), ContainsSubstring("holds no lm_head.weight"));
  CHECK_THAT(refusal([](Values& v) {
               v["model.norm.weight"] = {{31}, std::vector<float>(31)};
             }),
             ContainsSubstring("model.norm.weight has shape 31, but its config.json makes it 32"));
  CHECK_THAT(refusal([](Values& v) {
               v["model.embed_tokens.weight"] = {{259, 32}, std::vector<float>(259 * 32)};
             }),
             ContainsSubstring("model.embed_tokens.weight has shape 259 x 32, but its config.json makes it 260 x 32"));
  CHECK_THAT(refusal([](Values& v) {
               v["model.norm.weight"].first = {32, 1};
             }),
             ContainsSubstring("has shape 32 x 1, but its config.json makes it 32"));
}

}  // namespace trireme
