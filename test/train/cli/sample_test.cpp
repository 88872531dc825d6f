// trireme sample: text from runs, checkpoints, configs and published models, and what it says of a place without a model.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/cli/loaded_model.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

Ended sample(const Workplace& place, const std::string& from, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"sample", from, "--prompt", "abc", "--tokens", "20"};
  words.insert(words.end(), more.begin(), more.end());
  return run_trireme(place.scratch.path(), words);
}

// The text that is made; the command must succeed.
std::string text_of(const Workplace& place, const std::string& from, const std::vector<std::string>& more = {}) {
  const Ended ended = sample(place, from, more);
  succeed(ended);
  return ended.out;
}

}  // namespace

TEST_CASE("a sample is made of the run's own text, and the same seed gives the same text") {
  const Workplace place;
  succeed(place.train({"train.steps=200"}));
  const auto sample = [&](const std::string& seed) {
    const Ended ended =
        run_trireme(place.scratch.path(), {"sample", "runs/tiny", "--prompt", "abc", "--tokens", "100", "--seed", seed});
    succeed(ended);
    return ended.out;
  };
  const std::string first = sample("1");
  CHECK(first == sample("1"));
  CHECK(first != sample("2"));
  CHECK(first.substr(0, 3) == "abc");
  INFO(first);
  CHECK(std::count_if(first.begin(), first.end(), [](char c) { return c >= 'a' && c <= 'p'; }) > 90);
}

TEST_CASE("a sample is the same from a run's name, its directory, its checkpoint, its config and its export") {
  const Workplace place;
  succeed(place.train({"train.steps=40", "kernels.dtype=f32"}));
  succeed(run_trireme(place.scratch.path(), {"model", "export", "runs/tiny", "published"}));
  const std::string run = text_of(place, "runs/tiny");
  CHECK(run.size() == 3 + 20 + 1);
  for (const char* from : {"tiny", "runs/tiny/", "runs/tiny/checkpoints", "runs/tiny/checkpoints/step-00000040", "config.yaml"}) {
    CAPTURE(from);
    CHECK(text_of(place, from) == run);
  }
  CHECK(text_of(place, "published", {"--set", "kernels.dtype=f32"}) == run);
  CHECK(text_of(place, "runs/tiny", {"--step", "35"}) == text_of(place, "runs/tiny/checkpoints/step-00000035"));
  write_text(place.scratch / "begins.yaml",
             "train: {name: begins, init_from: published}\n"
             "model: {family: llama, layers: 1, width: 32, heads: 2, vocab: 257, context: 64}\n"
             "kernels: {dtype: f32}\ndata: {tokenizer: bytes}\n");
  CHECK(text_of(place, "begins.yaml") == run);
}

TEST_CASE("8-bit weights continue a text as those of training do, and another precision is refused by its name") {
  const Workplace place;
  succeed(place.train({"train.steps=200", "kernels.dtype=f32"}));
  const auto likely = [&](const std::string& weights) {
    return text_of(place, "tiny", {"--temperature", "0", "--weights", weights});
  };
  const std::string f32 = likely("f32"), int8 = likely("int8");
  CHECK(f32 == text_of(place, "tiny", {"--temperature", "0"}));
  CHECK(int8.size() == f32.size());
  CHECK(int8.substr(0, 5) == f32.substr(0, 5));
  const Ended ended = sample(place, "tiny", {"--weights", "int4"});
  CHECK(ended.code == 2);
  CHECK(ended.err.find("--weights") != std::string::npos);
  CHECK(ended.err.find("int8") != std::string::npos);
}

TEST_CASE("a prompt comes from standard input, too, and one that exceeds the context is cut with a word") {
  const Workplace place;
  succeed(place.train({"train.steps=40"}));
  const auto piped = [&](const std::string& writer) {
    const std::string command = writer + " | " TRIREME_BUILD "/trireme sample tiny --prompt - --tokens 20";
    const Ended ended = Process(place.scratch.path(), {"-c", command}, 1, "/bin/sh").wait();
    succeed(ended);
    return ended;
  };
  const std::string named = text_of(place, "tiny");
  CHECK(piped("printf abc").out == named);
  CHECK(piped("echo abc").out == named);
  CHECK(piped("printf 'abc\\n\\n'").out.starts_with("abc\n"));
  CHECK(piped("printf 'a\\033[2J'").out.starts_with("a^[[2J"));
  CHECK(piped("printf abc").err.empty());
  CHECK(piped("head -c 44 held.txt").err.empty());  // 45 tokens, and 19 of those that are made
  CHECK(piped("head -c 45 held.txt").err ==
        "--prompt: its 46 tokens and --tokens 20 exceed the context of 64; the last 45 are used\n");
  const Ended long_text = piped("head -c 5000 held.txt");
  CHECK(long_text.out.size() == 5000 + 20 + 1);
  CHECK(long_text.out.substr(5000) == piped("head -c 5000 held.txt | tail -c 45").out.substr(45));
}

TEST_CASE("a published model's first token is replaced where the tokenizer has fewer") {
  const Scratch scratch;
  WeightSource source{.config = {}, .checkpoint = ""};
  source.config.model.vocab = 50257;
  source.config.train.init_from = scratch.path();
  source.config.data.tokenizer = "bytes";
  for (const auto& [said, begin] : {std::pair(50256, 256), {257, 256}, {255, 255}, {-1, 256}}) {
    write_text(scratch / "config.json", R"({"bos_token_id": )" + std::to_string(said) + "}");
    CHECK(ModelTokenizer(source).begin_token() == begin);
  }
}

TEST_CASE("a sample on several ranks is refused once") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1"}));
  const Ended ended = Process(place.scratch.path(), {"sample", "tiny", "--prompt", "abc"}, 2).wait();
  CHECK(ended.code == 2);
  CHECK(ended.out.find("abc") == std::string::npos);
  CHECK(count_of(ended.err, "sample: runs in one process, but 2 were started; start it without mpirun or srun\n") == 1);
}

TEST_CASE("a sample as JSON has the text, its tokens and its speed, and nothing else on standard output") {
  const Workplace place;
  succeed(place.train({"train.steps=40"}));
  const std::string text = text_of(place, "tiny");
  const Ended ended = sample(place, "tiny", {"--json", "-"});
  succeed(ended);
  CHECK(ended.err == text);
  const Json found = Json::parse(ended.out);
  CHECK(found.at("weights") == "runs/tiny/checkpoints/step-00000040");
  CHECK(found.at("prompt") == "abc");
  CHECK(found.at("prompt_tokens") == 4);
  CHECK("abc" + found.at("text").get<std::string>() + "\n" == text);
  CHECK(found.at("tokens") == 20);
  CHECK(found.at("end_of_document") == false);
  CHECK(found.at("tokens_per_second").get<double>() == Approx(20 / found.at("seconds").get<double>()));
  const Ended controls =
      run_trireme(place.scratch.path(), {"sample", "tiny", "--prompt", "a\x1b\xff", "--tokens", "1", "--json", "-"});
  succeed(controls);
  CHECK(Json::parse(controls.out).at("prompt") == "a\x1b\uFFFD");
}

TEST_CASE("a sample from a place without a model names what is there instead") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1"}));
  succeed(place.train({"train.steps=2", "train.warmup=1", "train.name=other", "data.tokenizer="}));
  fs::create_directories(place.scratch / "empty");
  fs::create_directories(place.scratch / "runs/young");
  write_text(place.scratch / "runs/young/log.txt", "");
  const auto refusal = [&](const std::string& from, const std::vector<std::string>& more = {}) {
    const Ended ended = sample(place, from, more);
    CHECK(ended.out.empty());
    return std::to_string(ended.code) + " " + ended.err;
  };
  CHECK(refusal("runs") == "4 runs: holds several runs; name one of them: other, tiny\n");
  CHECK(refusal("runs/nosuch") == "4 runs/nosuch: no such file or directory; runs in runs: other, tiny\n");
  CHECK(refusal("runs/tinny") == "4 runs/tinny: no such file or directory; did you mean runs/tiny?\n");
  CHECK(refusal("othr") == "4 othr: no such file or directory; did you mean other?\n");
  CHECK(refusal("some/where/else") ==
        "4 some/where/else: no such file or directory; name a run, a checkpoint, a config or a published model's directory\n");
  CHECK(
      refusal("org/model-1b") ==
      "4 org/model-1b: no such file or directory; name a run, a checkpoint, a config or a published model's directory; to fetch a "
      "published model: hf download org/model-1b --local-dir DIR\n");
  CHECK(refusal("empty") == "4 empty: holds no checkpoint, and no config.json of a published model\n");
  CHECK(refusal("runs/young") ==
        "4 runs/young: this run has no checkpoint yet; it saves every checkpoint.every steps and at its end\n");
  write_text(place.scratch / "model.safetensors", "");
  CHECK(refusal("model.safetensors") == "2 model.safetensors: is one file of a model; name the directory that holds it\n");
  CHECK(refusal("runs/other") ==
        "2 runs/other/checkpoints/step-00000002: comes without a tokenizer (data.tokenizer); add --set "
        "data.tokenizer=PATH\n");
  CHECK(refusal("config.yaml", {"--set", "train.name=none"}) ==
        "2 config.yaml: runs/none holds no checkpoints, and there is no train.init_from\n");
}

TEST_CASE("several texts are those that each prompt and seed have alone, at any --batch") {
  const Workplace place;
  succeed(place.train({"train.steps=40"}));
  const std::vector<std::string> prompts{"abc", "", "the longest of them all, by far, and more", "p"};
  std::vector<std::string> alone;
  std::vector<Json> facts;
  for (const std::string& prompt : prompts)
    for (const char* seed : {"5", "6"}) {
      const Ended ended = run_trireme(
          place.scratch.path(), {"sample", "tiny", "--prompt", prompt, "--tokens", "50", "--seed", seed, "--json", "one.json"});
      succeed(ended);
      alone.push_back(ended.out);
      facts.push_back(Json::parse(read_text(place.scratch / "one.json")));
    }
  for (const char* batch : {"1", "3", "16"}) {
    CAPTURE(batch);
    std::vector<std::string> words{"sample",    "tiny", "--tokens", "50",  "--seed", "5",
                                   "--samples", "2",    "--batch",  batch, "--json", "all.jsonl"};
    for (const std::string& prompt : prompts) words.insert(words.end(), {"--prompt", prompt});
    const Ended ended = run_trireme(place.scratch.path(), words);
    succeed(ended);
    std::string wanted;
    for (size_t i = 0; i < alone.size(); ++i)
      wanted += (i > 0 ? "\n" : "") + std::string("--- ") + std::to_string(i + 1) + " of 8, seed " + (i % 2 == 0 ? "5" : "6") +
                "\n" + alone[i];
    CHECK(ended.out == wanted);
    CHECK_THAT(ended.err, ContainsSubstring("8 texts, 400 tokens in "));
    std::istringstream lines(read_text(place.scratch / "all.jsonl"));
    size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const Json found = Json::parse(line);
      for (const char* name : {"weights", "prompt", "prompt_tokens", "text", "tokens", "end_of_document", "seed"}) {
        CAPTURE(count, name);
        CHECK(found.at(name) == facts[count].at(name));
      }
    }
    CHECK(count == 8);
  }
}

TEST_CASE("prompts come from the lines of a file, from JSON lines and from standard input") {
  const Workplace place;
  succeed(place.train({"train.steps=2", "train.warmup=1"}));
  write_text(place.scratch / "lines.txt", "abc\r\n\n  \nbcd\n");
  write_text(place.scratch / "lines.jsonl", "{\"prompt\": \"abc\"}\n{\"prompt\": \"b\\ncd\", \"more\": 1}\n");
  write_text(place.scratch / "blank.txt", "\n\n");
  write_text(place.scratch / "empty.jsonl", "{\"prompt\": \"abc\"}\n\n{\"prompt\": \"\"}\n{\"prompt\": \"d\"}\n");
  write_text(place.scratch / "one.jsonl", "{\"prompt\": \"abc\"}\n");
  write_text(place.scratch / "binary.bin", std::string("a\0b\n", 4));
  succeed(Process(place.scratch.path(), {"-c", "gzip -k lines.jsonl lines.txt"}, 1, "/bin/sh").wait());
  write_text(place.scratch / "bad.jsonl", "{\"prompt\": \"abc\"}\n{\"promt\": \"abc\"}\n");
  const auto prompts_of = [&](const std::string& words) {
    const std::string command = TRIREME_BUILD "/trireme sample tiny --tokens 1 --json - " + words;
    const Ended ended = Process(place.scratch.path(), {"-c", command}, 1, "/bin/sh").wait();
    if (ended.code != 0) return std::to_string(ended.code) + " " + ended.err;
    std::string all;
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) all += Json::parse(line).at("prompt").get<std::string>() + "|";
    return all;
  };
  CHECK(prompts_of("--prompts lines.txt") == "abc|bcd|");
  CHECK(prompts_of("--prompts - < lines.txt") == "abc|bcd|");
  CHECK(prompts_of("--prompts lines.jsonl --prompt x") == "x|abc|b\ncd|");
  CHECK(prompts_of("--prompts lines.jsonl --prompt - < lines.txt") == "abc\r\n\n  \nbcd|abc|b\ncd|");
  CHECK(prompts_of("--prompts - --prompt - < lines.txt") == "2 --prompt -, --prompts -: standard input can be read once\n");
  CHECK(prompts_of("--prompts empty.jsonl") == "abc||d|");
  CHECK(prompts_of("--prompts one.jsonl") == "abc|");
  CHECK(prompts_of("--prompts lines.jsonl.gz") == "abc|b\ncd|");
  CHECK(prompts_of("--prompts lines.txt.gz") == "abc|bcd|");
  CHECK_THAT(prompts_of("--prompts binary.bin"), ContainsSubstring("3 binary.bin: has zero bytes"));
  CHECK_THAT(prompts_of("--prompt x --prompts blank.txt"), ContainsSubstring("holds no text"));
  CHECK_THAT(prompts_of("--prompt x --samples 2 --seed 9223372036854775807"), ContainsSubstring("2 --seed 9223372036854775807"));
  CHECK(prompts_of("--prompts blank.txt") == "2 --prompts blank.txt: holds no text\n");
  CHECK(prompts_of("") == "2 trireme sample: needs --prompt or --prompts\n");
  CHECK(prompts_of("--prompts none.txt").starts_with("3 none.txt: "));
  CHECK(prompts_of("--prompts bad.jsonl").starts_with("3 bad.jsonl:2: "));
}

TEST_CASE("each text that fills the context continues from its newer half, as alone") {
  const Workplace place;
  succeed(place.train({"train.steps=40"}));
  const auto texts = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"sample", "tiny", "--tokens", "150", "--json", "-"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_trireme(place.scratch.path(), words);
    succeed(ended);
    return ended.out;
  };
  const std::string first = Json::parse(texts({"--prompt", "abc"})).at("text"),
                    second = Json::parse(texts({"--prompt", "nop"})).at("text");
  const std::string both = texts({"--prompt", "abc", "--prompt", "nop"});
  CHECK(Json::parse(both.substr(0, both.find('\n'))).at("text") == first);
  CHECK(Json::parse(both.substr(both.find('\n') + 1)).at("text") == second);
  CHECK(first.size() >= 150);
}

}  // namespace trireme
