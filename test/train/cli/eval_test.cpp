// trireme eval and train.eval_choices: losses and likelihoods compared with training's and with the
// decoder's in double precision, on meshes, and for models that know the answer.
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/json.h"
#include "model/decoder.h"
#include "test/catch.h"
#include "test/train/golden.h"
#include "test/train/workplace.h"
#include "train/eval/choices.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

// Result of `trireme eval` with these arguments.
Json eval(const Workplace& place, const std::vector<std::string>& words, int ranks = 1) {
  std::vector<std::string> all{"eval"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--json", "found.json"});
  const Ended ended = Process(place.scratch.path(), all, ranks).wait();
  succeed(ended);
  INFO(ended.out);
  return Json::parse(read_text(place.scratch / "found.json"));
}

double shard_loss(const Workplace& place, const std::vector<std::string>& more, int ranks = 1) {
  std::vector<std::string> words{"runs/tiny", "--shards", "shards/validation-00000.h5", "--sequences", "9"};
  words.insert(words.end(), more.begin(), more.end());
  return eval(place, words, ranks).at("shards").at("loss").get<double>();
}

// Questions about held-out text: its continuation (the right answer), and letters that never stand
// there.
void write_questions(const Workplace& place, const std::string& name, bool right = true) {
  const std::string held = read_text(place.scratch / "held.txt");
  std::string lines;
  for (size_t i = 0; i < 12; ++i) {
    const std::string context = held.substr(700 * i, 10 + 2 * i), goes_on = held.substr(700 * i + context.size(), 6);
    const bool first = i % 3 == 0;
    const Json choices = first ? Json{goes_on, "ZZ ZZZ"} : Json{"ZZ ZZZ", goes_on};
    lines += Json{{"context", context}, {"choices", choices}, {"answer", first == right ? 0 : 1}}.dump() + "\n";
  }
  write_text(place.scratch / name, lines);
}

// A model of fresh weights large enough to have opinions, and a decoder with the same.
struct Twins {
  RunConfig config;
  Mesh mesh;
  Device device{Place::cpu, read_cpu_facts()};
  std::unique_ptr<TrainState> run;
  std::unique_ptr<Arenas> arenas;
  std::unique_ptr<Decoder> decoder;

  explicit Twins(Family family, bool document_mask) {
    ModelConfig& m = config.model;
    config.kernels.dtype = StepDtype::f32;
    m.family = family, m.layers = 2, m.width = 32, m.heads = 4, m.vocab = 257, m.context = 48, m.init_std = 0.3;
    m.z_loss = 1e-2, m.document_mask = document_mask;
    config.train.batch = config.train.microbatch = 2;
    config.resolve();
    run = std::make_unique<TrainState>(config, mesh, device, make_plan(config, mesh).sizes);
    run->optimizer.initialise(device.compute(), m.init_std, m.layers);
    const int64_t room = 8 << 20;
    arenas = std::make_unique<Arenas>(device, ArenaSizes{room, 0, 0, room, room});
    decoder = std::make_unique<Decoder>(m, DecoderDtypes{Dtype::f32}, *arenas, device.compute());
    const auto &from = run->stage.parameters(), &to = decoder->parameters();
    REQUIRE(from.size() == to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      REQUIRE(from[i].spec.name == to[i].spec.name);
      std::copy_n(from[i].weight.as<float>(), from[i].weight.size(), to[i].weight.as<float>());
    }
  }

  // Log-likelihood of tokens [first, end), from the decoder's logits after each preceding token, in
  // double precision.
  double likelihood(const std::vector<int32_t>& tokens, int64_t first) {
    decoder->clear();
    double sum = 0;
    for (int64_t t = first - 1; t + 1 < std::ssize(tokens); ++t) {
      const int64_t fed = decoder->length();
      decoder->feed(device.compute(), std::span(tokens).subspan(static_cast<size_t>(fed), static_cast<size_t>(t + 1 - fed)));
      const std::span logits(decoder->logits().as<float>(), 257);
      double all = 0;
      for (const float logit : logits) all += std::exp(static_cast<double>(logit));
      sum += static_cast<double>(logits[static_cast<size_t>(tokens[static_cast<size_t>(t) + 1])]) - std::log(all);
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("likelihoods of choices are the decoder's, packed and alone, also of what is cut at the left") {
  for (const auto& [family, mask] : {std::pair(Family::llama, true), {Family::llama, false}, {Family::gpt2, true}}) {
    CAPTURE(static_cast<int>(family), mask);
    Twins twins(family, mask);
    const Scratch scratch;
    std::string lines;
    for (size_t i = 0; i < 9; ++i) {
      const std::string context(i == 4 ? 60 : 7 * i % 30, static_cast<char>('a' + i));
      const Json choices{"x" + std::to_string(i), std::string(1 + 5 * i % 17, 'y'), " the end of it"};
      lines += Json{{"context", context}, {"choices", choices}, {"answer", i % 3}}.dump() + "\n";
    }
    write_text(scratch / "several.jsonl", lines);
    const auto tokenizer = make_byte_tokenizer();
    const ChoiceTask task(scratch / "several.jsonl", *tokenizer, twins.config.model);
    CHECK(task.name() == "several");
    CHECK((mask ? task.sequences() < 20 : task.sequences() == 27));
    const std::vector<double> found = task.likelihoods(*twins.run);
    size_t at = 0;
    for (const Question& question : task.questions())
      for (const Choice& choice : question.choices) {
        Continuation c = encode_continuation(*tokenizer, question.context, choice.text);
        const int64_t cut = std::max<int64_t>(0, std::ssize(c.tokens) - 49);
        c.tokens.erase(c.tokens.begin(), c.tokens.begin() + cut);
        CHECK(found[at++] == Approx(twins.likelihood(c.tokens, c.first - cut)).epsilon(2e-6));
      }
    CHECK(at == found.size());
  }
}

TEST_CASE("scores count what is likeliest, and likeliest for its length, with their standard errors") {
  const auto question = [](size_t answer, const std::vector<int64_t>& lengths) {
    Question q{.context = "", .choices = {}, .answer = answer, .line = 1};
    for (const int64_t length : lengths) q.choices.push_back({std::string(static_cast<size_t>(length), 'x'), length});
    return q;
  };
  // Right by likelihood; right by likelihood over length; both; neither, for the first of equals is taken.
  const std::vector<Question> questions{question(0, {2, 10}), question(1, {2, 10}), question(2, {1, 1, 4, 4}), question(1, {3, 3})};
  const ChoiceScore score = score_choices(questions, {-4, -5, -4, -5, -9, -9, -1, -2, -3, -3});
  CHECK(score.questions == 4);
  CHECK(score.accuracy == 0.5);
  CHECK(score.normalised == 0.5);
  CHECK(score.accuracy_error == Approx(std::sqrt(0.25 / 3)));
  CHECK(score.chance == (0.5 + 0.5 + 0.25 + 0.5) / 4);
  CHECK(describe(score) == "acc 0.5000 +- 0.2887, acc_norm 0.5000 +- 0.2887 (chance 0.4375)");
}

TEST_CASE("choices that alone exceed the context are refused, each by its line") {
  const Scratch scratch;
  ModelConfig model;
  model.context = 8;
  const std::string line = Json{{"context", "a"}, {"choices", {"12345678", "123456789"}}, {"answer", 0}}.dump() + "\n";
  write_text(scratch / "q.jsonl", line + line);
  const auto tokenizer = make_byte_tokenizer();
  CHECK_THROWS_WITH(ChoiceTask(scratch / "q.jsonl", *tokenizer, model),
                    ContainsSubstring("q.jsonl:1: choice 1 has 9 tokens; the model's context holds 8\n") &&
                        ContainsSubstring("q.jsonl:2: choice 1"));
  write_text(scratch / "q.json", Json{{"context", "a"}, {"choices", {"1", "2"}}, {"answer", 0}}.dump());
  write_text(scratch / "q.jsonl", read_text(scratch / "q.json"));
  CHECK_THROWS_WITH(open_choice_tasks({scratch / "q.json", scratch / "q.jsonl"}, *tokenizer, model),
                    ContainsSubstring("another file of questions is also called q: rename one of them"));
}

TEST_CASE("eval finds the loss that training's own evaluation has found, and a fresh model as unsure as its vocabulary") {
  const Workplace place;
  succeed(place.train({"train.steps=1", "train.warmup=0", "train.lr=1e-9", "train.name=fresh", "model.init_std=1e-5"}));
  const Json fresh = eval(place, {"runs/fresh", "--text", "held.txt", "--sequences", "20"}).at("text");
  CHECK(fresh.at("perplexity").get<double>() == Approx(257).epsilon(1e-4));

  for (const std::string dtype : {"f32", "bf16"}) {
    succeed(place.train({"model.z_loss=1e-3", "kernels.dtype=" + dtype, "train.name=" + dtype}));
    const Json line = place.metrics(dtype).back();
    const Json found =
        eval(place, {"runs/" + dtype, "--shards", "shards/validation-00000.h5", "--sequences", "8", "--overlap", "0"});
    CHECK(found.at("step") == 20);
    CHECK(static_cast<float>(found["shards"]["loss"].get<double>()) == line.at("val_loss").get<float>());
    CHECK(static_cast<float>(found["shards"]["bits_per_byte"].get<double>()) == line.at("bits_per_byte").get<float>());
    CHECK(found["shards"]["tokens"] == line.at("val_tokens"));
  }
  // A run whose replicas divide several copies of the state, on other numbers of ranks.
  succeed(place.train({"train.name=pairs", "train.microbatch=1", "parallel.shard=2", "parallel.zero=3"}, 4));
  const auto on_ranks = [&](int ranks) {
    return eval(place, {"runs/pairs", "--shards", "shards/validation-00000.h5", "--sequences", "8"}, ranks)
        .at("shards")
        .at("loss")
        .get<double>();
  };
  CHECK(on_ranks(1) == Approx(on_ranks(4)).epsilon(1e-6));
  CHECK(on_ranks(3) == Approx(on_ranks(4)).epsilon(1e-6));
  const auto of_step = [&](const std::string& step) {
    return eval(place,
                {"runs/f32", "--shards", "shards/validation-00000.h5", "--sequences", "8", "--overlap", "0", "--step", step});
  };
  CHECK(of_step("15").at("shards").at("loss") > of_step("20").at("shards").at("loss"));
}

TEST_CASE("a published model is evaluated as it is, as the run that it was exported from") {
  const Workplace place;
  succeed(place.train({"train.steps=6", "kernels.dtype=f32"}));
  succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "published"}));
  write_questions(place, "q.jsonl");
  const std::vector<std::string> inputs{
      "--shards", "shards/validation-00000.h5", "--text", "held.txt", "--sequences", "5", "--choices", "q.jsonl",
      "--set",    "kernels.dtype=f32"};
  const auto all = [&](const std::string& from) {
    std::vector<std::string> words{from};
    words.insert(words.end(), inputs.begin(), inputs.end());
    return eval(place, words);
  };
  const Json published = all("published"), run = all("runs/tiny");
  for (const char* part : {"shards", "text"}) {
    CHECK(published[part]["tokens"] == run[part]["tokens"]);
    CHECK(published[part]["loss"].get<double>() == Approx(run[part]["loss"].get<double>()).epsilon(1e-7));
  }
  CHECK(published["choices"][0]["acc"] == run["choices"][0]["acc"]);
  CHECK(published["weights"] == "published");
  CHECK(Process(place.scratch.path(), {"eval", "published", "--step", "3", "--text", "held.txt"}, 1).wait().code != 0);
}

TEST_CASE("few-shot scores and likelihoods are lm-evaluation-harness's, for four tasks at 0, 2 and 6 shots") {
  const Scratch scratch;
  const std::string goldens = std::string(TRIREME_SOURCE) + "/test/data/goldens/choices/";
  std::filesystem::create_directory(scratch / "model");
  Json config = Json::parse(read_text(golden_of("qwen3") + "/config.json"));
  config["max_position_embeddings"] = Json(4096);
  write_text(scratch / "model/config.json", config.dump());
  write_text(scratch / "model/model.safetensors", read_text(golden_of("qwen3") + "/model.safetensors"));
  std::istringstream lines(read_text(goldens + "scores.jsonl"));
  int64_t compared = 0;
  for (std::string line; std::getline(lines, line); ++compared) {
    const Json golden = Json::parse(line);
    const std::string task = golden.at("task").get<std::string>(), shots = std::to_string(golden.at("shots").get<int64_t>());
    INFO(task << " at " << shots << " shots");
    std::vector<std::string> words{"eval",      "model",
                                   "--json",    "found.json",
                                   "--shots",   shots,
                                   "--set",     "data.tokenizer=bytes",
                                   "--set",     "kernels.dtype=f32",
                                   "--set",     "model.context=4096",
                                   "--choices", goldens + "questions_" + task + ".jsonl"};
    if (task != "own" && shots != "0") words.insert(words.end(), {"--examples", goldens + "examples_" + task + ".jsonl"});
    const Ended ended = run_trireme(scratch.path(), words);
    succeed(ended);
    const std::string choices = task == "piqa" ? "14" : "28";
    CHECK_THAT(ended.out, ContainsSubstring(", 7 questions, " + choices + " choices, " + shots + " shots, "));
    const Json found = Json::parse(read_text(scratch / "found.json")).at("choices")[0];
    CHECK(found.at("acc").get<double>() == Approx(golden.at("acc").get<double>()));
    if (golden.contains("acc_norm")) CHECK(found.at("acc_norm").get<double>() == Approx(golden.at("acc_norm").get<double>()));
    const auto wanted = golden.at("log_likelihoods").get<std::vector<std::vector<double>>>();
    const auto got = found.at("log_likelihoods").get<std::vector<std::vector<double>>>();
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      REQUIRE(got[i].size() == wanted[i].size());
      for (size_t k = 0; k < got[i].size(); ++k) CHECK(got[i][k] == Approx(wanted[i][k]).margin(5e-4));
    }
  }
  CHECK(compared == 15);
}

TEST_CASE("text is evaluated whole, whatever the overlap") {
  const Workplace place;
  succeed(place.train({"train.steps=60", "train.eval_every=0"}));
  const auto of_text = [&](const std::string& overlap) {
    return eval(place, {"runs/tiny", "--text", "held.txt", "--overlap", overlap}).at("text");
  };
  const Json half = eval(place, {"runs/tiny", "--text", "held.txt"}).at("text"), none = of_text("0");
  CHECK(half == [&] {
    Json same = of_text("32");
    for (const char* measured : {"seconds", "tokens_per_second"}) same[measured] = half[measured];
    return same;
  }());
  CHECK(half["bytes"] == 20000);
  CHECK(half["tokens"] == 20001);  // and the end
  const double loss = half["loss"];
  CHECK(half["perplexity"].get<double>() == Approx(std::exp(loss)));
  CHECK(half["bits_per_byte"].get<double>() == Approx(loss * 20001 / 20000 / std::log(2)));
  CHECK(none["tokens"] == 20001);
  CHECK(none["loss"] != loss);
  CHECK(none["loss"].get<double>() == Approx(loss).epsilon(0.01));  // of a source without a memory
}

TEST_CASE("shards alone are evaluated without the tokenizer of the model, if it cannot be opened") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1", "train.eval_every=0"}));
  const auto with = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{"eval", "runs/tiny", "--shards", "shards/validation-00000.h5", "--sequences", "9"};
    all.insert(all.end(), words.begin(), words.end());
    return run_trireme(place.scratch.path(), all);
  };
  const double loss = shard_loss(place, {});
  CHECK(shard_loss(place, {"--set", "data.tokenizer=gone.json"}) == loss);
  const Ended warned = with({"--set", "data.tokenizer=gone.json"});
  succeed(warned);
  CHECK_THAT(warned.err, ContainsSubstring("warning: gone.json: ") && ContainsSubstring("is not compared with the model's"));
  const Ended text = with({"--set", "data.tokenizer=gone.json", "--text", "held.txt"});
  CHECK(text.code == 3);
  CHECK_THAT(text.err, ContainsSubstring("gone.json"));
}

TEST_CASE("an evaluation is the same to the bit on any number of replicas, and on other meshes within rounding") {
  const Workplace place;
  succeed(place.train({"train.eval_every=0", "model.layers=2"}));
  const double alone = shard_loss(place, {});
  CHECK(shard_loss(place, {}, 2) == alone);
  CHECK(shard_loss(place, {"--set", "parallel.zero=3"}, 2) == alone);
  CHECK(shard_loss(place, {"--set", "parallel.pp=2"}, 2) == alone);
  CHECK(shard_loss(place, {"--set", "parallel.tp=2"}, 2) == Approx(alone).epsilon(2e-6));
  CHECK(shard_loss(place, {"--set", "train.microbatch=4"}) == Approx(alone).epsilon(2e-6));
}

TEST_CASE("weights that an evaluation on several ranks does not find are named once, with their exit code on every rank") {
  const Workplace place;
  const Ended ended = Process(place.scratch.path(), {"eval", "missing", "--shards", "data/valid-00000.h5"}, 2).wait();
  CHECK(ended.code == 4);
  CHECK(count_of(ended.err, "missing: no such file or directory; name a run") == 1);
}

TEST_CASE("one rank of an evaluation makes the directory of its results, and all end in the same way if it cannot be made") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1", "train.eval_every=0"}));
  write_text(place.scratch / "file", "");
  const auto with = [&](const std::string& json, const std::string& shards, int ranks) {
    return Process(place.scratch.path(), {"eval", "runs/tiny", "--shards", shards, "--sequences", "8", "--json", json}, ranks)
        .wait();
  };
  const std::string shards = "shards/validation-00000.h5";
  succeed(with("new/directory/found.json", shards, 2));
  CHECK(Json::parse(read_text(place.scratch / "new/directory/found.json")).contains("shards"));
  const Ended refused = with("file/found.json", shards, 2);
  CHECK(refused.code == 3);
  CHECK_FALSE(refused.left_alone);
  CHECK(count_of(refused.err, "file: the directory cannot be made") == 1);
  CHECK(with("other/found.json", "nothing.h5", 1).code == 3);
  CHECK_FALSE(std::filesystem::exists(place.scratch / "other"));
}

TEST_CASE("a model that knows the text finds its continuation, on any number of ranks, and permuted answers are wrong") {
  const Workplace place;
  write_questions(place, "right.jsonl");
  write_questions(place, "wrong.jsonl", false);
  const std::vector<std::string> settings{"train.steps=60", "train.eval_every=30"};
  succeed(place.train(settings));
  auto with = settings;
  with.insert(with.end(), {"train.name=asked", "train.eval_choices=[right.jsonl, wrong.jsonl]"});
  const Ended asked = place.train(with);
  succeed(asked);
  CHECK(place.differ("tiny", "asked") == 0);  // asking changes nothing
  std::vector<Json> lines = place.metrics("asked"), of_choices;
  std::ranges::copy_if(lines, std::back_inserter(of_choices), [](const Json& line) { return line.contains("choices"); });
  std::erase_if(lines, [](const Json& line) { return line.contains("choices"); });
  CHECK(lines == place.metrics("tiny"));
  REQUIRE(of_choices.size() == 4);
  CHECK_THAT(asked.out, ContainsSubstring("eval 60/60  right acc 1.0000 +- 0.0000, acc_norm 1.0000"));
  CHECK_THAT(place.run("asked", "report.html"), ContainsSubstring("<h2>right</h2>"));

  Json alone;
  for (const int ranks : {1, 2}) {
    const Json found = eval(place, {"runs/tiny", "--choices", "right.jsonl", "wrong.jsonl"}, ranks).at("choices");
    if (ranks == 1) alone = found;
    CHECK(found[0].at("log_likelihoods") == alone[0].at("log_likelihoods"));
    CHECK(found[0].at("log_likelihoods").size() == 12);
    for (const size_t i : {0, 1}) {
      const Json& line = of_choices[2 + i];
      CHECK(line.at("choices") == found[i].at("name"));
      for (const char* key : {"acc", "acc_stderr", "acc_norm", "chance", "questions"}) CHECK(line.at(key) == found[i].at(key));
    }
    CHECK(found[0].at("acc") == 1);
    CHECK(found[1].at("acc") == 0);
    CHECK(found[1].at("acc_norm") == 0);
  }
}

TEST_CASE("an evaluation that cannot be is refused in one line") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1", "train.eval_every=0", "data.tokenizer="}));
  const auto refusal = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{"eval"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run_trireme(place.scratch.path(), all);
    return std::to_string(ended.code) + " " + ended.err;
  };
  CHECK_THAT(refusal({"runs/tiny"}), Catch::Matchers::StartsWith("2 ") && ContainsSubstring("needs --shards, --text or --choices"));
  CHECK_THAT(refusal({"runs/none", "--text", "held.txt"}),
             Catch::Matchers::StartsWith("4 ") && ContainsSubstring("runs/none: no such file or directory; runs in runs: tiny"));
  CHECK_THAT(refusal({"runs/tiny", "--text", "held.txt"}),
             Catch::Matchers::StartsWith("2 ") && ContainsSubstring("--set data.tokenizer=PATH"));
  CHECK_THAT(refusal({"runs/tiny", "--shards", "held.txt", "--overlap", "64"}),
             Catch::Matchers::StartsWith("2 ") && ContainsSubstring("below model.context = 64"));
  CHECK_THAT(refusal({"runs/tiny", "--shards", "nothing.h5"}),
             Catch::Matchers::StartsWith("3 ") && ContainsSubstring("nothing.h5"));
  CHECK_THAT(
      refusal({"config.yaml", "--shards", "shards/validation-00000.h5", "--set", "train.name=other"}),
      Catch::Matchers::StartsWith("2 ") && ContainsSubstring("runs/other holds no checkpoints, and there is no train.init_from"));
}

}  // namespace trireme
