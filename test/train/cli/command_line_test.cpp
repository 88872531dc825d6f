// The program itself, as a user starts it: help on every level, and one clear line with exit code 2 for what cannot be understood.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "train/config/keys.h"

using namespace trireme;

TEST_CASE("help is there on every level, and the train command's explains every key") {
  const std::vector<std::string> levels = {"",
                                           "init",
                                           "config",
                                           "config schema",
                                           "train",
                                           "supervise",
                                           "plan",
                                           "sample",
                                           "chat",
                                           "eval",
                                           "data",
                                           "data build",
                                           "data import",
                                           "data info",
                                           "data verify",
                                           "data where",
                                           "data exclude",
                                           "tokenizer",
                                           "tokenizer train",
                                           "tokenizer encode",
                                           "tokenizer decode",
                                           "checkpoint",
                                           "checkpoint list",
                                           "checkpoint verify",
                                           "checkpoint diff",
                                           "model",
                                           "model export",
                                           "model config",
                                           "bench",
                                           "bench kernels",
                                           "bench save",
                                           "bench step",
                                           "bench tokenizer",
                                           "bench data",
                                           "doctor",
                                           "version",
                                           "help",
                                           "man",
                                           "completion"};
  for (const std::string& level : levels) {
    INFO(level);
    const Ended help = run_trireme_line(level + " --help");
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, ContainsSubstring(level.empty() ? "Usage: trireme " : "Usage: trireme " + level));
  }
  const std::string help = run_trireme_line("train --help").out;
  for (const Key& key : list_keys({})) CHECK_THAT(help, ContainsSubstring("  " + key.full() + " = "));
}

TEST_CASE("a command line that cannot be understood is one line and exit code 2") {
  const std::pair<const char*, const char*> cases[] = {
      {"trian x.yaml", "trireme: no command 'trian'; did you mean train?"},
      {"frobnicate", "trireme: no command 'frobnicate'; see trireme --help"},
      {"data biuld", "trireme data: no command 'biuld'; did you mean build?"},
      {"tokenizer lean", "trireme tokenizer: no command 'lean'; see trireme tokenizer --help"},
      {"train", "trireme train: config is required"},
      {"train a.yaml b.yaml", "b.yaml"},
      {"train a.yaml --sett x.y=1", "trireme train: no option '--sett'; did you mean --set?"},
      {"train a.yaml --set", "trireme train: --set"},
      {"train --hlep", "trireme train: no option '--hlep'; did you mean --help?"},
      {"plan a.yaml --ranks 0", "trireme plan: --ranks: must be a whole number, at least 1, not '0'"},
      {"plan a.yaml --ranks 1e3", "trireme plan: --ranks: must be a whole number, at least 1, not '1e3'"},
      {"plan a.yaml --ranks 99999999999999999999", "must be a whole number, at least 1, not '99999999999999999999'"},
      {"sample run --prompt x --temperature nan", "trireme sample: --temperature: must be a number, 0 to 100, not 'nan'"},
      {"sample run --prompt x --temperature -1", "trireme sample: --temperature: must be a number, 0 to 100, not '-1'"},
      {"sample run --prompt x --top-p 1.5", "trireme sample: --top-p: must be a number, 0 to 1, not '1.5'"},
      {"eval", "trireme eval: from is required"},
      {"eval run --sequences -1", "trireme eval: --sequences: must be a whole number, at least 0, not '-1'"},
      {"sample run --prompt x --tokens 3.5", "trireme sample: --tokens: must be a whole number, at least 1, not '3.5'"},
      {"data build --output x --tokenizer bytes", "trireme data build: input is required"},
      {"data build a --tokenizer bytes", "trireme data build: --output is required"},
      {"data build a --output x", "trireme data build: --tokenizer is required"},
      {"data build a --output x --tokenizer bytes --on-error maybe", "trireme data build: --on-error: maybe not in {skip,stop}"},
      {"data build a --output x --tokenizer bytes --pack tight", "trireme data build: --pack: tight not in {concatenate,best-fit}"},
      {"data build a --output x --tokenizer bytes --pack best-fit", "--pack best-fit: needs --context"},
      {"data build a --output x --tokenizer bytes --prompt-field p",
       "trireme data build: --prompt-field requires --response-field"},
      {"data build a --output x --tokenizer bytes --messages-field m --field t", "--field excludes --messages-field"},
      {"data build a --output x --tokenizer bytes --validation 2",
       "trireme data build: --validation: must be a number, 0 to 1, not '2'"},
      {"tokenizer train a --output b --vocab 256",
       "trireme tokenizer train: --vocab: must be a whole number, 257 to 16777216, not '256'"},
      {"tokenizer decode bytes x", "token id 'x': must be a whole number, at least 0"},
      {"checkpoint diff a", "trireme checkpoint diff: b is required"},
      {"doctor now", "trireme doctor: config requires --fabric"},
      {"version now", "now"},
      {"train /no/such.yaml", "/no/such.yaml: cannot be read: No such file or directory"},
      {"plan " TRIREME_SOURCE "/configs/llama3-8b.yaml --set model.heads=7", "model.kv_heads = 8: must divide model.heads = 7"},
  };
  for (const auto& [arguments, line] : cases) {
    INFO(arguments);
    const Ended refused = run_trireme_line(arguments);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, ContainsSubstring(line));
    const bool config = std::string(arguments).find("heads=7") != std::string::npos;  // two problems, two lines
    CHECK(std::ranges::count(refused.err, '\n') == (config ? 2 : 1));
  }
}

TEST_CASE("texts go to token ids and back on the command line") {
  const Scratch scratch;
  const auto tokenizer = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "tokenizer");
    return run_trireme(scratch.path(), words);
  };
  CHECK(tokenizer({"encode", "bytes", "hi there", ""}).out == "104 105 32 116 104 101 114 101\n\n");
  CHECK(tokenizer({"encode", "bytes", "[1,2]", "--", "-x", "--", "--file"}).out ==
        "91 49 44 50 93\n45 120\n45 45\n45 45 102 105 108 101\n");
  CHECK(tokenizer({"encode", "bytes", "train", "-"}).out == "116 114 97 105 110\n45\n");
  CHECK(tokenizer({"encode", "bytes"}).out == "\n");  // of an empty stdin
  CHECK(tokenizer({"decode", "bytes", "104", "105"}).out == "hi\n");
  CHECK(tokenizer({"decode", "bytes", "999"}).code == 3);
  CHECK(tokenizer({"encode", "/no/such.json", "x"}).code == 3);
}

TEST_CASE("a text to encode, a file and an option are distinguished") {
  const Scratch scratch;
  const auto encode = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"tokenizer", "encode", "bytes"});
    return run_trireme(scratch.path(), words);
  };
  CHECK_THAT(run_trireme_line("tokenizer encode --help").out,
             ContainsSubstring("Usage: trireme tokenizer encode [OPTIONS] tokenizer [texts...]"));
  write_text(scratch / "a", "hi\n");
  write_text(scratch / "lines", "\"h\\n\"\n\"i\"\n");
  write_text(scratch / "bad", "\"h\"\nno\n");
  const Ended name = encode({"a"});
  CHECK(name.out == "97\n");
  CHECK(name.err == "these are the ids of the text 'a'; those of the file are given by --file a\n");
  CHECK(encode({"b"}).err.empty());
  CHECK(encode({"--file", "a"}).out == "104 105 10\n");
  CHECK(encode({"--file", "a", "--file", "-", "--file=a"}).out == "104 105 10\n\n104 105 10\n");
  CHECK(encode({"--json-lines", "--file", "lines"}).out == "104 10\n105\n");
  const std::pair<std::vector<std::string>, const char*> refusals[] = {
      {{"--fiel", "a"}, "trireme tokenizer encode: no option '--fiel'; did you mean --file?"},
      {{"x", "-y"}, "-y; see trireme tokenizer encode --help"},
      {{"x", "--file", "a"}, "texts are given, which --file does not go with"},
      {{"x", "--json-lines"}, "texts are given, which --json-lines does not go with"},
      {{"--lines", "--json-lines"}, "--lines excludes --json-lines"},
  };
  for (const auto& [words, message] : refusals) {
    const Ended refused = encode(words);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, ContainsSubstring(message));
    CHECK(std::ranges::count(refused.err, '\n') == 1);
  }
  CHECK(encode({"--file", "none"}).code == 3);
  CHECK_THAT(encode({"--json-lines", "--file", "bad"}).err, ContainsSubstring("bad:2: is not a JSON string"));
}

TEST_CASE("lines go to lines of token ids and back, from files and from stdin") {
  const Scratch scratch;
  const auto tokenizer = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "tokenizer");
    const Ended ended = run_trireme(scratch.path(), words);
    INFO(ended.err);
    CHECK(ended.code == 0);
    return ended.out;
  };
  std::string lines = "hi\n\n a\r\n\xff\nthe last has no end", strings;
  for (int i = 0; i < 40000; ++i) strings += "\"" + std::to_string(i) + "\\n and a line of some length\"\n";  // over a MiB
  write_text(scratch / "lines", lines);
  write_text(scratch / "strings", strings);
  const std::string ids = tokenizer({"encode", "bytes", "--lines", "--file", "lines"});
  CHECK(ids.starts_with("104 105\n\n32 97 13\n255\n116 104 101 "));
  CHECK(std::ranges::count(ids, '\n') == 5);
  write_text(scratch / "ids", ids);
  CHECK(tokenizer({"decode", "bytes", "--lines", "--file", "ids"}) == lines + "\n");
  CHECK(tokenizer({"decode", "bytes", "--file", "ids"}) == "hi a\r\xffthe last has no end\n");
  CHECK(tokenizer({"decode", "bytes", "--json-lines", "--file", "ids"}).starts_with("\"hi\"\n\"\"\n\" a\\r\"\n\"\xef\xbf\xbd\"\n"));
  write_text(scratch / "ids", tokenizer({"encode", "bytes", "--json-lines", "--file", "strings"}));
  CHECK(tokenizer({"decode", "bytes", "--json-lines", "--file", "ids"}) == strings);
  CHECK(tokenizer({"encode", "bytes", "--lines"}).empty());  // of an empty stdin
  write_text(scratch / "bad", "1 2\n3 x\n");
  const Ended bad = run_trireme(scratch.path(), {"tokenizer", "decode", "bytes", "--lines", "--file", "bad"});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("bad:2: token id 'x': must be a whole number"));
}

TEST_CASE("a tokenizer is learnt with special tokens, reports its texts, and is not replaced unasked") {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "{\"text\": \"the cat sat on the mat " + std::to_string(i % 100) + "\"}\n";
  write_text(scratch / "a.jsonl", lines);
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"tokenizer", "train", "a.jsonl", "--vocab", "270", "--output", "t.json"});
    return run_trireme(scratch.path(), words);
  };
  const Ended first = train({"--special", "<|user|>", "--special", "[PAD]"});
  CHECK(first.code == 0);
  CHECK(first.err.empty());
  CHECK_THAT(first.out, ContainsSubstring("t.json: 270 entries from 48.6 KiB of text in 2000 documents"));
  CHECK(run_trireme(scratch.path(), {"tokenizer", "decode", "t.json", "97", "267", "268", "269", "98"}).out == "ab\n");
  const std::string made = read_text(scratch / "t.json");
  const Ended again = train({});
  CHECK(again.code == 2);
  CHECK(again.err == "t.json: is there already; --replace replaces it\n");
  CHECK(read_text(scratch / "t.json") == made);
  const Ended sampled = train({"--replace", "--text-limit", "20000"});
  CHECK(sampled.code == 0);
  CHECK_THAT(sampled.out, ContainsSubstring(" KiB of 48.6 KiB of text in "));
  CHECK(sampled.err == "this was an even sample of the documents, for --text-limit 20000\n");
  CHECK(read_text(scratch / "t.json") != made);
  CHECK(train({"--replace", "--text-limit", "much"}).err == "--text-limit much: must be a size such as 1GiB\n");
  CHECK(train({"--replace", "--special", ""}).code == 2);
}

TEST_CASE("shards are built, described and verified, and a damaged one does not hide the others") {
  const Scratch scratch;
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "word" + std::to_string(i % 97) + (i % 10 == 9 ? "\n" : " ");
  write_text(scratch / "a.txt", words);
  write_text(scratch / "b.txt", "held out");
  const auto run = [&](const std::vector<std::string>& arguments) { return run_trireme(scratch.path(), arguments); };

  const Ended learned = run({"tokenizer", "train", "a.txt", "--vocab", "300", "--output", "t.json"});
  REQUIRE(learned.code == 0);
  CHECK_THAT(learned.out, ContainsSubstring("t.json: 300 entries from "));
  const std::vector<std::string> build = {
      "data",  "build",          "a.txt", "--output",  "out", "--tokenizer", "t.json", "--validation-input",
      "b.txt", "--shard-tokens", "3000",  "--threads", "1"};
  const Ended built = run(build);
  REQUIRE(built.code == 0);
  CHECK_THAT(built.out, ContainsSubstring("out/train-00000.h5") && ContainsSubstring("\nvalidation: "));
  CHECK(run(build).code != 0);  // never over shards that are there
  std::vector<std::string> again = build;
  again.push_back("--replace");
  CHECK(run(again).code == 0);

  const Ended info = run({"data", "info", "out"});
  CHECK(info.code == 0);
  CHECK_THAT(info.out, ContainsSubstring("out/validation-00000.h5: ") && ContainsSubstring(" shards: ") &&
                           ContainsSubstring("vocabulary 300"));
  CHECK(run({"data", "verify", "out"}).code == 0);
  std::string bytes = read_text(scratch / "out/train-00000.h5");
  bytes[bytes.size() - 100] ^= 1;
  write_text(scratch / "out/train-00000.h5", bytes);
  const Ended verified = run({"data", "verify", "out"});
  CHECK(verified.code == 3);
  CHECK_THAT(verified.err, ContainsSubstring("out/train-00000.h5"));
  CHECK_THAT(verified.out, ContainsSubstring("out/validation-00000.h5: undamaged"));

  again[4] = "other";
  again.insert(again.end(), {"--validation", "0.5"});
  const Ended both = run(again);
  CHECK(both.code == 2);
  CHECK(both.err == "--validation and --validation-input: give one of them\n");
}

TEST_CASE("the checkpoints of a run are listed, verified and compared") {
  const Scratch scratch;
  std::string words;
  for (int i = 0; i < 500; ++i) words += "word" + std::to_string(i * 31 % 97) + " ";
  write_text(scratch / "a.txt", words);
  write_text(scratch / "tiny.yaml",
             "kernels: {dtype: f32, threads: 1}\n"
             "model: {layers: 1, width: 16, heads: 2, vocab: 257, context: 16}\n"
             "data: {train: out, tokenizer: bytes}\n"
             "checkpoint: {every: 2}\n"
             "train: {name: tiny, steps: 4, batch: 2, warmup: 1}\n");
  const auto run = [&](const std::vector<std::string>& arguments) { return run_trireme(scratch.path(), arguments); };
  REQUIRE(run({"data", "build", "a.txt", "--output", "out", "--tokenizer", "bytes"}).code == 0);
  const Ended trained = run({"train", "tiny.yaml"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);

  const Ended list = run({"checkpoint", "list", "runs/tiny"});
  CHECK(list.code == 0);
  CHECK_THAT(list.out, ContainsSubstring("step 2  ") && ContainsSubstring("step 4  ") && ContainsSubstring(" tensors, "));
  CHECK(run({"checkpoint", "diff", "runs/tiny", "runs/tiny/checkpoints/step-00000004"}).code == 0);
  const Ended differ = run({"checkpoint", "diff", "runs/tiny", "runs/tiny/checkpoints/step-00000002"});
  CHECK(differ.code == 4);
  CHECK_THAT(differ.err, ContainsSubstring("differ: "));

  const std::string shard = scratch / "runs/tiny/checkpoints/step-00000002/shard-00000.h5";
  std::string bytes = read_text(shard);
  bytes[bytes.size() / 2] ^= 1;
  write_text(shard, bytes);
  const Ended verified = run({"checkpoint", "verify", "runs/tiny"});
  CHECK(verified.code == 4);
  CHECK_THAT(verified.err, ContainsSubstring("step-00000002"));
  CHECK_THAT(verified.out, ContainsSubstring("step 4  ") && ContainsSubstring("whole"));
}

TEST_CASE("commands on things that are not there end with the code of their kind") {
  CHECK(run_trireme_line("checkpoint list /no/such/run").code == 4);
  CHECK(run_trireme_line("checkpoint verify /no/such/run").code == 4);
  CHECK(run_trireme_line("checkpoint diff /no/such/run /no/such/run").code == 4);
  CHECK(run_trireme_line("data info /no/such/shards").code == 3);
  CHECK(run_trireme_line("data verify /no/such/shards").code == 3);
  CHECK(run_trireme_line("data build /no/such/text --output /tmp/never --tokenizer bytes").code == 3);
  CHECK(run_trireme_line("tokenizer train /no/such/text --output /tmp/never.json").code == 3);
}
