// Reading and writing the configuration: every key, by file, --set and help.
#include "train/config/config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/config/config_text.h"
#include "train/config/keys.h"

using namespace trireme;

namespace {

// Other texts that the key takes: one that differs from its default.
std::string another_value(const Key& key) {
  if (key.type == "true or false") return key.value == "true" ? "false" : "true";
  if (key.type == "a text" || key.type == "a path") return "something: else # \"here\"";
  if (key.type == "a list of paths") return "a dir/b.h5,c";
  if (key.type.starts_with("a list of steps")) return "7-9";
  if (key.type.starts_with("a list of numbers")) return "0.25";
  if (key.type.starts_with("a list of whole numbers")) return "3";
  if (key.type.starts_with("a whole number")) return key.value == "2" ? "3" : "2";
  if (key.type.starts_with("a number")) return key.value == "1.5" ? "1.75" : key.type.ends_with("0 to 1") ? "0.625" : "1.5";
  return key.value == key.type.substr(0, key.value.size()) ? key.type.substr(key.type.rfind(' ') + 1)
                                                           : key.type.substr(0, key.type.find_first_of(", "));
}

}  // namespace

TEST_CASE("an empty section and comments leave the defaults") {
  const RunConfig config = read_yaml("# nothing\nmodel:\n  # layers: 3\ntrain: {}\n");
  CHECK(config.model.layers == RunConfig().model.layers);
  CHECK(config.model.kv_heads == config.model.heads);  // resolved
  CHECK(config.microbatch_rows(1) == config.train.batch);
  CHECK(config.microbatch_rows(2) == config.train.batch / 2);
}

TEST_CASE("values of every kind are read from the file") {
  const RunConfig config = read_yaml(
      "kernels: {device: cpu, dtype: \"f32\", logits: auto, threads: 3}\n"
      "model:\n"
      "  family: gpt2\n"
      "  layers: 1e1  # exact, so it is a whole number\n"
      "  width: 1.28e2\n"
      "  tied: false\n"
      "  theta: 5e5\n"
      "  init_std: .02\n"
      "data:\n"
      "  train: [a.h5, \"b, c.h5\", 7]\n"
      "  validation: one.h5\n"
      "  tokenizer: bytes\n"
      "train: {name: true, seed: 9223372036854775807, schedule: 'wsd'}\n");
  CHECK(config.kernels.device == DeviceChoice::cpu);
  CHECK(config.kernels.dtype == StepDtype::f32);
  CHECK(config.kernels.threads == 3);
  CHECK(config.model.family == Family::gpt2);
  CHECK(config.model.layers == 10);
  CHECK(config.model.width == 128);
  CHECK_FALSE(config.model.tied);
  CHECK(config.model.theta == 500000.0);
  CHECK(config.model.init_std == 0.02);
  CHECK(config.data.train == std::vector<std::string>{"a.h5", "b, c.h5", "7"});
  CHECK(config.data.validation == std::vector<std::string>{"one.h5"});
  CHECK(config.train.name == "true");
  CHECK(config.train.seed == std::numeric_limits<int64_t>::max());
  CHECK(config.train.schedule == LrSchedule::wsd);
}

TEST_CASE("logits have the step's numbers on a GPU and f32 on the CPU by default") {
  const auto of = [](const std::string& keys) { return read_yaml("kernels: {" + keys + "}\n").kernels.logits_dtype(); };
  CHECK(of("dtype: bf16") == Dtype::f32);
  CHECK(of("dtype: bf16, device: cuda") == Dtype::bf16);
  CHECK(of("dtype: f32, device: cuda") == Dtype::f32);
  CHECK(of("dtype: bf16, device: cuda, logits: f32") == Dtype::f32);
  CHECK(of("dtype: bf16, logits: bf16") == Dtype::bf16);
}

TEST_CASE("invariant numerics take our own products, whose sums do not depend on the number of threads") {
  const auto of = [](const std::string& text) { return read_yaml(text).kernels_of_run().products; };
  CHECK(of("kernels: {threads: 2}\n") == ProductKernels::automatic);
  CHECK(of("kernels: {products: onednn}\n") == ProductKernels::onednn);
  for (const char* const products : {"auto", "onednn", "ours"})
    CHECK(of(std::string("kernels: {products: ") + products + "}\nparallel: {numerics: invariant}\ntrain: {microbatch: 1}\n") ==
          ProductKernels::ours);
}

TEST_CASE("overrides win over the file, and the last over those before") {
  const RunConfig config =
      read_yaml("model:\n  layers: 3\n", {"model.layers=4", "model.layers=5", "train.name=a=b", "data.train=a,b c",
                                          "data.validation=[x, \"y, z\"]", "data.tokenizer="});
  CHECK(config.model.layers == 5);
  CHECK(config.train.name == "a=b");
  CHECK(config.data.train == std::vector<std::string>{"a", "b c"});
  CHECK(config.data.validation == std::vector<std::string>{"x", "y, z"});
  CHECK(config.data.tokenizer.empty());
  CHECK(read_yaml("data:\n  train: [a]\n", {"data.train="}).data.train.empty());
}

TEST_CASE("every key is set by --set, read back from the written file, listed by differences and explained by the help") {
  const std::string help = config_help();
  const RunConfig before = read_yaml("train:\n  warmup: 0\n");
  for (const Key& key : list_keys({})) {
    INFO(key.full());
    CHECK_THAT(help, ContainsSubstring("  " + key.full() + " = " + key.value + "  (" + key.type + ")\n      " + key.help + "\n"));
    CHECK_FALSE(key.help.empty());
    RunConfig config;
    const std::string other = another_value(key);
    REQUIRE(set_key(config, key.section, key.name, {.texts = {other}}) == "");
    const auto changed = differences({}, config);
    REQUIRE(changed.size() == 1);
    CHECK(changed[0].starts_with(key.full() + ": " + key.value + " -> "));

    // Through --set, where resolve() and check() follow: other keys may follow it, or refuse it as this version must.
    RunConfig overridden;
    try {
      overridden = read_yaml("train:\n  warmup: 0\n", {key.full() + "=" + other});
    } catch (const ConfigError& e) {
      CHECK_THAT(std::string(e.what()),
                 ContainsSubstring("--set " + key.full() + "=" + other + ": ") || ContainsSubstring(key.full() + " = "));
      continue;
    }
    const auto told = differences(before, overridden);
    CHECK(std::ranges::any_of(told, [&](const std::string& line) { return line.starts_with(key.full() + ": "); }));
    CHECK_THAT(to_yaml(overridden), ContainsSubstring("\n  " + key.name + ": "));
    CHECK(differences(overridden, read_yaml(to_yaml(overridden))).empty());
  }
}

TEST_CASE("a run is its model, its data in their order, and the numbers it computes with") {
  std::set<std::string> others;  // besides the model's
  for (const Key& key : list_keys({})) {
    if (key.section == "model") CHECK(key.limit.of_the_run);
    if (key.section != "model" && key.limit.of_the_run) others.insert(key.full());
  }
  CHECK(others == std::set<std::string>{"data.train", "data.weights", "data.tokenizer", "train.batch", "train.seed",
                                        "parallel.compress", "parallel.compress_rank", "parallel.local_steps", "parallel.outer_lr",
                                        "parallel.apart_after", "parallel.local_lr", "parallel.local_moments",
                                        "parallel.outer_momentum", "train.rounding", "kernels.dtype", "kernels.residual"});
}

TEST_CASE("a checkpoint of a version without kernels.residual had a residual stream of the step's dtype") {
  RunConfig config = read_yaml("kernels: {dtype: bf16}\n");
  CHECK(config.kernels.residual_dtype() == Dtype::f32);
  std::string old = to_yaml(config);
  CHECK(parse_saved_config("new", old).kernels.residual == ResidualDtype::f32);
  const size_t line = old.find("  residual: f32\n");
  REQUIRE(line != std::string::npos);
  old.erase(line, old.find('\n', line) + 1 - line);
  CHECK(parse_saved_config("old", old).kernels.residual == ResidualDtype::bf16);
  CHECK(parse_saved_config("old", old, {"kernels.residual=f32"}).kernels.residual == ResidualDtype::f32);
  old.replace(old.find("dtype: bf16"), 11, "dtype: f32");
  CHECK(parse_saved_config("old", old).kernels.residual == ResidualDtype::f32);
}

TEST_CASE("the written file gives every number its bits and every text its bytes back") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    RunConfig config;
    config.resolve();
    const auto positive = [&] {
      for (;;) {
        const double value = std::bit_cast<double>(random() & 0x7fffffffffffffff);
        if (std::isfinite(value) && value > 0) return value;
      }
    };
    config.train.lr = positive();
    config.train.eps = positive();
    config.model.theta = positive();
    config.train.clip = i % 2 ? positive() : -0.0;
    config.train.seed = static_cast<int64_t>(random() >> 1);
    const std::vector<std::string> texts = {"",
                                            " ",
                                            "~",
                                            "null",
                                            "true",
                                            "7",
                                            "a: b # c",
                                            "\"q\" \\ 'p'",
                                            "\x01\x1f\x7f\t\n\r",
                                            "é 漢 \xf0\x9f\x9a\xa3",
                                            "- x",
                                            "{a}",
                                            "[b]",
                                            "&c",
                                            "*d",
                                            "!e",
                                            "%f",
                                            "@g",
                                            "`h",
                                            "line\\nline",
                                            "\xc2\x85\xe2\x80\xa8\xef\xbb\xbf"};
    config.data.tokenizer = texts[random() % texts.size()];
    config.train.runs = "x" + texts[random() % texts.size()];
    for (size_t n = random() % 4; n > 0; --n) config.data.train.push_back("p" + texts[random() % texts.size()]);
    const RunConfig back = read_yaml(to_yaml(config));
    REQUIRE(differences(config, back).empty());
    REQUIRE(std::bit_cast<uint64_t>(back.train.lr) == std::bit_cast<uint64_t>(config.train.lr));
    REQUIRE(std::bit_cast<uint64_t>(back.train.clip) == std::bit_cast<uint64_t>(config.train.clip));
    REQUIRE(back.data.train == config.data.train);
    REQUIRE(back.data.tokenizer == config.data.tokenizer);
  }
}

TEST_CASE("damaged files are refused or read, never more") {
  std::ifstream whole(TRIREME_SOURCE "/configs/llama3-8b.yaml");
  const std::string good{std::istreambuf_iterator<char>(whole), {}};
  REQUIRE(good.size() > 500);
  std::mt19937_64 random(11);
  const std::string marks = "{}[]:,-&*!|>'\"%@`#?\\ \n\t~<.0";
  int refused = 0;
  for (int i = 0; i < 250; ++i) {
    std::string bad = good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad.insert(at, 1, marks[random() % marks.size()]);
          break;
        case 2:
          bad.erase(at, 1 + random() % 20);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
      }
    }
    refused += !complaint(bad).empty();
  }
  CHECK(refused > 100);
}

TEST_CASE("a warm-up longer than the run becomes a tenth of it, with a note") {
  const RunConfig config = read_yaml("train:\n  steps: 40\n");
  CHECK(config.train.warmup == 4);
  CHECK(config.notes ==
        std::vector<std::string>{"train.warmup: 100 -> 4: longer than train.steps = 40, so a tenth of it is taken"});
  CHECK_THAT(to_yaml(config), ContainsSubstring("\n  warmup: 4\n"));
  CHECK(read_yaml(to_yaml(config)).notes.empty());
  CHECK(read_yaml("train: {steps: 5, warmup: 6}\n").train.warmup == 0);
  CHECK(read_yaml("train: {steps: 5, warmup: 5}\n").train.warmup == 5);
}

TEST_CASE("every file in configs/ is read, resolves, and says all it needs for training") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE "/configs")) {
    INFO(entry.path());
    if (entry.path().filename() == "schema.json") continue;
    ++count;
    REQUIRE(entry.path().extension() == ".yaml");
    CHECK(read_text(entry.path()).starts_with("# yaml-language-server: $schema=schema.json\n"));
    const RunConfig config = read_config(entry.path(), {}, Purpose::train);
    CHECK(config.train.name == entry.path().stem());
    CHECK(config.model.head_size > 0);
    CHECK(differences(config, read_yaml(to_yaml(config))).empty());
  }
  CHECK(count >= 12);
}
