// Paths of a config: variables, included files, and files that do not exist.
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "parallel/world.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/config/config.h"
#include "train/config/expand_path.h"
#include "train/config/missing_files.h"

using namespace trireme;

namespace {

// Sets HOME and TRIREME_DATA, and unsets TRIREME_NONE.
struct Variables {
  const std::string home = environment("HOME");
  Variables() {
    setenv("HOME", "/home/ada", 1);
    setenv("TRIREME_DATA", "/data", 1);
    unsetenv("TRIREME_NONE");
  }
  ~Variables() {
    setenv("HOME", home.c_str(), 1);
    unsetenv("TRIREME_DATA");
  }
};

// The message of a config that is refused, with DIR for the scratch directory; "" if it is read.
std::string refusal(const Scratch& scratch, const std::vector<std::string>& set = {}, Purpose purpose = Purpose::plan) {
  try {
    read_config(scratch / "x.yaml", set, purpose);
    return "";
  } catch (const ConfigError& error) {
    std::string message = error.what();
    for (size_t i; (i = message.find(scratch.path())) != std::string::npos;) message.replace(i, scratch.path().size(), "DIR");
    return message;
  }
}

}  // namespace

TEST_CASE("home and variables are expanded in paths, and escapes keep dollar signs") {
  const Variables variables;
  const auto path = [](const std::string& text) { return expand_path(text).path; };
  CHECK(path("~") == "/home/ada");
  CHECK(path("~/x/*.h5") == "/home/ada/x/*.h5");
  CHECK(path("~ada/x") == "~ada/x");
  CHECK(path("a/~/x") == "a/~/x");
  CHECK(path("$TRIREME_DATA/x") == "/data/x");
  CHECK(path("a${TRIREME_DATA}b") == "a/datab");
  CHECK(path("$$TRIREME_DATA/$5/$") == "$TRIREME_DATA/$5/$");
  CHECK(expand_path("$TRIREME_NONE/x").problem == "$TRIREME_NONE is not set; write $$ for a dollar sign");
  CHECK(expand_path("${TRIREME_DATA").problem == "'${' needs a name and '}'");
  CHECK(expand_path("${}").problem == "'${' needs a name and '}'");
  for (const std::string text : {"~", "~/x", "~x", "$HOME", "${HOME}", "$~", "$$", "a$b$", "", "x~"})
    CHECK(path(escape_path(text)) == text);
}

TEST_CASE("variables are expanded in keys that are paths, in files and on the command line, and in no other") {
  const Scratch scratch;
  const Variables variables;
  write_text(scratch / "x.yaml",
             "data:\n  train: [~/a.h5, \"$TRIREME_DATA/b.h5\"]\ncheckpoint: {command: 'echo $TRIREME_DATA'}\ntrain: {name: $x}\n");
  const RunConfig config = read_config(scratch / "x.yaml", {"train.runs=${TRIREME_DATA}/runs", "data.tokenizer=a$$b"});
  CHECK(config.data.train == std::vector<std::string>{"/home/ada/a.h5", "/data/b.h5"});
  CHECK(config.train.runs == "/data/runs");
  CHECK(config.data.tokenizer == "a$b");
  CHECK(config.checkpoint.command == "echo $TRIREME_DATA");
  CHECK(config.train.name == "$x");
  CHECK(differences(config, parse_config("again", to_yaml(config))).empty());
  write_text(scratch / "x.yaml", "data:\n  train: [a.h5, $TRIREME_NONE/b.h5]\n");
  CHECK(refusal(scratch) ==
        "DIR/x.yaml:2: data.train = [a.h5, $TRIREME_NONE/b.h5]: $TRIREME_NONE is not set; write $$ for a dollar sign");
  CHECK(refusal(scratch, {"data.train=$TRIREME_NONE"}) ==
        "DIR/x.yaml:2: data.train = [a.h5, $TRIREME_NONE/b.h5]: $TRIREME_NONE is not set; write $$ for a dollar sign\n"
        "--set data.train=$TRIREME_NONE: $TRIREME_NONE is not set; write $$ for a dollar sign");
}

TEST_CASE("included files are read first, relative to the file that includes them, and it wins") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "base/deep");
  write_text(scratch / "x.yaml", "train: {steps: 7}\ninclude: [base/a.yaml, base/b.yaml]\nmodel:\n  layers: 3\n");
  write_text(scratch / "base/a.yaml", "include: deep/c.yaml\nmodel: {layers: 4, heads: 2}\ntrain: {batch: 5, seed: 5}\n");
  write_text(scratch / "base/b.yaml", "train: {batch: 6, steps: 8}\n");
  write_text(scratch / "base/deep/c.yaml", "model: {layers: 9, width: 64}\ntrain: {seed: 9, lr: 0.5}\n");
  const RunConfig config = read_config(scratch / "x.yaml", {"train.warmup=3"}, Purpose::plan);
  CHECK(config.model.layers == 3);
  CHECK(config.model.heads == 2);
  CHECK(config.model.width == 64);
  CHECK(config.train.batch == 6);
  CHECK(config.train.steps == 7);
  CHECK(config.train.seed == 5);
  CHECK(config.train.lr == 0.5);
  CHECK_THAT(to_yaml(config), !ContainsSubstring("include"));
}

TEST_CASE("mistakes of included files are reported with their file and line") {
  const Scratch scratch;
  write_text(scratch / "x.yaml", "include: base.yaml\ntrain:\n  steps: 7\n");
  CHECK(refusal(scratch) == "DIR/x.yaml:1: include: DIR/base.yaml: cannot be read: No such file or directory");
  write_text(scratch / "base.yaml", "model:\n  layers: 0\n  haeds: 2\n  width: 10\n");
  CHECK(refusal(scratch) ==
        "DIR/base.yaml:2: model.layers = 0: must be a whole number, 1 to 100000\n"
        "DIR/base.yaml:3: model.haeds: unknown key; did you mean model.heads?");
  write_text(scratch / "base.yaml", "model:\n  width: 10\n  heads: 4\n");
  CHECK(refusal(scratch) == "DIR/base.yaml:2: model.width = 10: must be a multiple of model.heads = 4");
  write_text(scratch / "base.yaml", "model: [\n");
  CHECK_THAT(refusal(scratch), ContainsSubstring("DIR/base.yaml:2:1: is not valid YAML: "));
  write_text(scratch / "base.yaml", "include: [more.yaml]\n");
  write_text(scratch / "more.yaml", "include: ./x.yaml\n");
  CHECK(refusal(scratch) == "DIR/more.yaml:1: include: DIR/./x.yaml includes itself");
  write_text(scratch / "more.yaml", "include: more.yaml\n");
  CHECK(refusal(scratch) == "DIR/more.yaml:1: include: DIR/more.yaml includes itself");
  write_text(scratch / "x.yaml", "include: {a: b}\n");
  CHECK(refusal(scratch) == "DIR/x.yaml:1: include: must be a file or a list of files");
  write_text(scratch / "x.yaml", "include: a.yaml\ninclude: a.yaml\n");
  CHECK_THAT(refusal(scratch), ContainsSubstring("DIR/x.yaml:2: include: appears twice, first in line 1"));
  CHECK_THROWS_WITH(parse_config("a checkpoint", "include: /etc/passwd\n"),
                    "a checkpoint:1: include: unknown section; there are kernels, parallel, model, data, checkpoint, train, report");
}

TEST_CASE("files that include ever more files are refused") {
  const Scratch scratch;
  write_text(scratch / "x.yaml", "include: [a0.yaml]\n");
  for (int i = 0; i < 10; ++i) {
    const std::string next = "a" + std::to_string(i + 1) + ".yaml";
    write_text(scratch / ("a" + std::to_string(i) + ".yaml"), "include: [" + next + ", " + next + "]\n");
  }
  write_text(scratch / "a10.yaml", "train: {steps: 3}\n");
  CHECK_THAT(refusal(scratch), ContainsSubstring(": include: more than 100 files"));
}

TEST_CASE("a start names each file that does not exist, its key, its line and the working directory") {
  const Scratch scratch;
  write_text(scratch / "x.yaml",
             "data:\n  train: [none/train-*.h5, " + scratch.path() + "/x.yaml]\n  tokenizer: none/tokenizer.json\n");
  CHECK(refusal(scratch, {"train.eval_choices=" + scratch.path() + "/q.jsonl"}, Purpose::start) ==
        "DIR/x.yaml:2: data.train = [none/train-*.h5, DIR/x.yaml]: none/train-*.h5: no file matches this pattern\n"
        "--set train.eval_choices=DIR/q.jsonl: no such file or directory\n"
        "DIR/x.yaml:3: data.tokenizer = none/tokenizer.json: no such file\n"
        "paths count from the working directory, " +
            std::filesystem::current_path().string());
  write_text(scratch / "x.yaml", "data: {train: [" + scratch.path() + "/none-*.h5]}\n");
  CHECK(refusal(scratch, {}, Purpose::start) == "DIR/x.yaml:1: data.train = [DIR/none-*.h5]: no file matches this pattern");
  CHECK(refusal(scratch, {}, Purpose::train) == "");
  RunConfig config;
  config.data.tokenizer = "bytes";
  CHECK(missing_files(config).empty());
  config.data.tokenizer = scratch / "x.yaml@cl100k";
  CHECK(missing_files(config).empty());
}
