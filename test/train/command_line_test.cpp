// The program itself, as a user starts it: help on every level, and one clear line with exit code 2 for what cannot be understood.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "test/catch.h"
#include "train/keys.h"

using namespace trireme;

namespace {

struct Outcome {
  std::string out, err;
  int code;
};

std::string drained(FILE* pipe) {
  std::string all;
  for (int c; (c = std::fgetc(pipe)) != EOF;) all += static_cast<char>(c);
  return all;
}

// `arguments` as a shell takes them.
Outcome started(const std::string& arguments) {
  const std::string program = TRIREME_BUILD "/trireme " + arguments;
  FILE* out = popen((program + " 2>/dev/null").c_str(), "r");
  Outcome outcome{.out = drained(out), .err = "", .code = WEXITSTATUS(pclose(out))};
  FILE* err = popen((program + " 2>&1 >/dev/null").c_str(), "r");
  outcome.err = drained(err);
  pclose(err);
  return outcome;
}

}  // namespace

TEST_CASE("help is there on every level, and the train command's explains every key") {
  for (const char* level : {"",
                            "train",
                            "plan",
                            "sample",
                            "data",
                            "data build",
                            "data info",
                            "data verify",
                            "tokenizer",
                            "tokenizer train",
                            "tokenizer encode",
                            "tokenizer decode",
                            "checkpoint",
                            "checkpoint list",
                            "checkpoint verify",
                            "checkpoint diff",
                            "bench",
                            "bench kernels",
                            "bench step",
                            "doctor"}) {
    INFO(level);
    const Outcome help = started(std::string(level) + " --help");
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, ContainsSubstring("Usage: trireme" + std::string(*level ? " " : "") + level));
  }
  const std::string help = started("train --help").out;
  for (const Key& key : list_keys({})) CHECK_THAT(help, ContainsSubstring("  " + key.full() + " = "));
}

TEST_CASE("the version is one line") {
  const Outcome version = started("--version");
  CHECK(version.code == 0);
  CHECK(version.out.starts_with("trireme "));
  CHECK(std::ranges::count(version.out, '\n') == 1);
}

TEST_CASE("a command line that cannot be understood is one line and exit code 2") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "trireme: needs a command: train, plan, sample, data, tokenizer, checkpoint, bench, doctor"},
      {"trian x.yaml", "trireme: no command 'trian'; did you mean train?"},
      {"frobnicate", "trireme: no command 'frobnicate'; see trireme --help"},
      {"data", "trireme data: needs a command: build, info, verify"},
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
      {"sample run", "trireme sample: --prompt is required"},
      {"sample run --prompt x --temperature nan", "trireme sample: --temperature: must be a number, 0 to 100, not 'nan'"},
      {"sample run --prompt x --temperature -1", "trireme sample: --temperature: must be a number, 0 to 100, not '-1'"},
      {"sample run --prompt x --top-p 1.5", "trireme sample: --top-p: must be a number, 0 to 1, not '1.5'"},
      {"sample run --prompt x --tokens 3.5", "trireme sample: --tokens: must be a whole number, at least 1, not '3.5'"},
      {"data build --output x --tokenizer bytes", "trireme data build: input is required"},
      {"data build a --tokenizer bytes", "trireme data build: --output is required"},
      {"data build a --output x", "trireme data build: --tokenizer is required"},
      {"data build a --output x --tokenizer bytes --on-error maybe", "trireme data build: --on-error: maybe not in {skip,stop}"},
      {"data build a --output x --tokenizer bytes --validation 2",
       "trireme data build: --validation: must be a number, 0 to 1, not '2'"},
      {"tokenizer train a --output b --vocab 256",
       "trireme tokenizer train: --vocab: must be a whole number, 257 to 16777216, not '256'"},
      {"tokenizer decode bytes x", "token id 'x': must be a whole number, at least 0"},
      {"checkpoint diff a", "trireme checkpoint diff: b is required"},
      {"doctor now", "now"},
      {"train /no/such.yaml", "/no/such.yaml: cannot be read: No such file or directory"},
      {"plan " TRIREME_SOURCE "/configs/quickstart.yaml --set model.heads=3",
       TRIREME_SOURCE "/configs/quickstart.yaml:9: model.kv_heads = 2: must divide model.heads = 3"},
  };
  for (const auto& [arguments, line] : cases) {
    INFO(arguments);
    const Outcome refused = started(arguments);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, ContainsSubstring(line));
    const bool config = std::string(arguments).find("heads=3") != std::string::npos;  // two problems, two lines
    CHECK(std::ranges::count(refused.err, '\n') == (config ? 2 : 1));
  }
}

TEST_CASE("texts go to token ids and back on the command line") {
  CHECK(started("tokenizer encode bytes 'hi there' ''").out == "104 105 32 116 104 101 114 101\n\n");
  CHECK(started("tokenizer encode bytes < /dev/null").out == "\n");
  CHECK(started("tokenizer decode bytes 104 105").out == "hi\n");
  CHECK(started("tokenizer decode bytes 999").code == 3);
  CHECK(started("tokenizer encode /no/such.json x").code == 3);
}

TEST_CASE("commands on things that are not there end with the code of their kind") {
  CHECK(started("checkpoint list /no/such/run").code == 4);
  CHECK(started("checkpoint verify /no/such/run").code == 4);
  CHECK(started("checkpoint diff /no/such/run /no/such/run").code == 4);
  CHECK(started("data info /no/such/shards").code == 3);
  CHECK(started("data verify /no/such/shards").code == 3);
  CHECK(started("data build /no/such/text --output /tmp/never --tokenizer bytes").code == 3);
  CHECK(started("tokenizer train /no/such/text --output /tmp/never.json").code == 3);
}
