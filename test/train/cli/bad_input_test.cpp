// Mistakes of users, as one table: each gets its exit code and one clear line that names the thing,
// and loses nothing.
#include <filesystem>
#include <functional>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const char* const kConfig = R"(
kernels: {dtype: f32, threads: 1}
model: {layers: 1, width: 16, heads: 2, vocab: 257, context: 16}
data: {train: [shards/train-00000.h5], validation: [shards/validation-00000.h5], tokenizer: bytes}
train: {name: good, steps: 3, batch: 2, lr: 0.01, warmup: 1}
)";

// Good files, and a finished run; copied anew for each row, so that every row spoils its own.
struct Fixture {
  Scratch scratch;
  Fixture() {
    std::string words;
    for (int i = 0; i < 3000; ++i) words += "word" + std::to_string(i * 7919 % 1000) + (i % 10 == 9 ? "\n" : " ");
    fs::create_directory(scratch / "good");
    write_text(scratch / "good/text.txt", words);
    write_text(scratch / "good/config.yaml", kConfig);
    good({"tokenizer", "train", "text.txt", "--vocab", "300", "--output", "tokenizer.json"});
    good({"data", "build", "text.txt", "--validation-input", "config.yaml", "--output", "shards", "--tokenizer", "bytes"});
    good({"train", "config.yaml"});
  }
  void good(const Words& words) const {
    const Ended ended = run_trireme(scratch / "good", words);
    INFO(ended.err);
    REQUIRE(ended.code == 0);
  }
};

void flip(const std::string& path, double where) {
  std::string bytes = read_text(path);
  REQUIRE(!bytes.empty());
  bytes[static_cast<size_t>(where * static_cast<double>(bytes.size() - 1))] ^= 4;
  write_text(path, bytes);
}

void cut(const std::string& path, double part) {
  fs::resize_file(path, static_cast<uintmax_t>(part * static_cast<double>(fs::file_size(path))));
}

using Spoil = std::function<void(const std::string& directory)>;

Spoil config_with(const std::string& line) {
  return [line](const std::string& directory) { write_text(directory + "/config.yaml", std::string(kConfig) + line + "\n"); };
}
Spoil file(const std::string& name, const std::string& text) {
  return [name, text](const std::string& directory) { write_text(directory + "/" + name, text); };
}
Spoil flip_in(const std::string& name, double where) {
  return [name, where](const std::string& directory) { flip(directory + "/" + name, where); };
}
Spoil cut_off(const std::string& name, double part) {
  return [name, part](const std::string& directory) { cut(directory + "/" + name, part); };
}
void nothing(const std::string&) {}

struct Row {
  const char* what;
  Spoil spoil;
  Words command;
  int code;
  const char* names;  // a part of the line
  int lines = 2;      // at most: the problem, perhaps a remedy
};

const char* const kShard = "shards/train-00000.h5";
const char* const kStep = "runs/good/checkpoints/step-00000003";

std::vector<Row> table() {
  const Words train{"train", "config.yaml"};
  const auto set = [&](const std::string& assignment) { return Words{"train", "config.yaml", "--set", assignment}; };
  const Words build{"data", "build", "new.txt", "--output", "new", "--tokenizer", "bytes"};
  const auto build_with = [](const std::string& input, const std::string& tokenizer) {
    return Words{"data", "build", input, "--output", "new", "--tokenizer", tokenizer};
  };
  const auto in_step = [](const std::string& name) { return std::string(kStep).append("/").append(name); };
  return {
      // command line
      {"no command", nothing, {}, 2, "command", 60},  // and the help
      {"unknown command", nothing, {"trian", "config.yaml"}, 2, "train"},
      {"unknown option", nothing, {"train", "config.yaml", "--sett", "a.b=1"}, 2, "--set"},
      {"no config named", nothing, {"train"}, 2, "config"},
      {"no such config", nothing, {"train", "confg.yaml"}, 2, "config.yaml"},
      {"a directory as config", nothing, {"train", "shards"}, 2, "directory"},
      {"a number that is none", nothing, {"sample", "runs/good", "--prompt", "a", "--tokens", "ten"}, 2, "ten"},
      {"no output named", nothing, {"data", "build", "text.txt", "--tokenizer", "bytes"}, 2, "--output"},
      {"too small a vocabulary", nothing, {"tokenizer", "train", "text.txt", "--vocab", "10", "--output", "t.json"}, 2, "vocab"},
      {"a plan for more ranks than there can be", nothing, {"plan", "config.yaml", "--ranks", "8"}, 2, "on 8 ranks"},
      // config
      {"unknown key", nothing, set("model.layer=2"), 2, "model.layers"},
      {"unknown section", config_with("modle: {layers: 2}"), train, 2, "model"},
      {"not a number", nothing, set("train.steps=many"), 2, "train.steps"},
      {"out of range", nothing, set("train.lr=-1"), 2, "train.lr"},
      {"no such word", nothing, set("kernels.dtype=fp16"), 2, "bf16"},
      {"heads that do not divide", nothing, set("model.heads=3"), 2, "model."},
      {"a microbatch that does not divide", nothing, set("train.microbatch=3"), 2, "train.microbatch"},
      {"a mesh that is not there", nothing, set("parallel.tp=2"), 2, "parallel.tp"},
      {"broken YAML", config_with("train: [unclosed"), train, 2, "config.yaml:"},
      {"YAML aliases", config_with("x: &a [1]"), train, 2, "anchors"},
      {"an empty config", file("config.yaml", ""), train, 2, "empty"},
      {"binary for a config", file("config.yaml", std::string("\0\1\2", 3)), train, 2, "config.yaml"},
      {"cuDNN without a GPU", nothing, set("kernels.attention=cudnn"), 2, "kernels.attention = cudnn: is for GPUs"},
      {"CUDA where there is none", nothing, set("kernels.device=cuda"), 2, "kernels.device"},
      {"more memory than there is",
       nothing,
       {"train", "config.yaml", "--set", "model.width=65536", "--set", "model.heads=512", "--set", "train.name=big"},
       2,
       "; weights, gradients and moments alone take ",
       1},
      {"more memory than there is for activations",
       nothing,
       {"train", "config.yaml", "--set", "train.batch=536870912", "--set", "train.name=big"},
       2,
       "; it fits with --set train.microbatch=",
       1},
      {"a vocabulary smaller than the shards'",
       nothing,
       {"train", "config.yaml", "--set", "model.vocab=100", "--set", "train.name=new"},
       2,
       "model.vocab"},
      {"another tokenizer than the shards'",
       nothing,
       {"train", "config.yaml", "--set", "data.tokenizer=tokenizer.json", "--set", "train.name=new", "--set", "model.vocab=300"},
       3,
       "tokenizer"},
      {"never resume where checkpoints are", nothing, {"train", "config.yaml", "--resume", "never"}, 2, "runs/good"},
      {"a resume with another model", nothing, set("model.theta=5"), 2, "model.theta"},
      {"a key of another trainer", nothing, set("train.learning_rate=0.1"), 2, "did you mean train.lr?"},
      {"a key without a value", nothing, set("train.lr"), 2, "--set train.lr: has no value; write train.lr=VALUE"},
      {"a variable that is not set", nothing, set("train.runs=$NO_SUCH_VARIABLE/runs"), 2, "$NO_SUCH_VARIABLE is not set"},
      {"a tokenizer that is not there", nothing, set("data.tokenizer=none.json"), 2,
       "--set data.tokenizer=none.json: no such file\npaths count from the working directory, /"},
      {"an included file that is not there", config_with("include: none.yaml"), train, 2, "include: none.yaml: cannot be read"},
      // text and JSONL
      {"no such text", nothing, build, 3, "new.txt"},
      {"an empty text", file("new.txt", ""), build, 3, "new"},
      {"a text that is not UTF-8", file("new.txt", "fine\nbad \xff\xfe\n"), build, 3, "new.txt:2"},
      {"JSONL that is not JSON", file("new.jsonl", "{\"text\": \"a\"}\n{oops\n"), build_with("new.jsonl", "bytes"), 3,
       "new.jsonl:2"},
      {"JSONL without the field", file("new.jsonl", "{\"txt\": \"a\"}\n"), build_with("new.jsonl", "bytes"), 3, "text"},
      {"JSONL whose field is no string", file("new.jsonl", "{\"text\": 7}\n"), build_with("new.jsonl", "bytes"), 3, "new.jsonl:1"},
      // tokenizer
      {"no such tokenizer", nothing, build_with("text.txt", "none.json"), 3, "none.json"},
      {"a tokenizer that is no JSON", file("t.json", "{"), build_with("text.txt", "t.json"), 3, "t.json"},
      {"a tokenizer of another kind", file("t.json", R"({"model": {"type": "WordPiece"}})"), build_with("text.txt", "t.json"), 3,
       "t.json"},
      {"a tokenizer cut short", cut_off("tokenizer.json", 0.5), build_with("text.txt", "tokenizer.json"), 3, "tokenizer.json"},
      {"a SentencePiece model that is none", file("t.model", "{}"), build_with("text.txt", "t.model"), 3, "t.model"},
      {"a token beyond the vocabulary", nothing, {"tokenizer", "decode", "bytes", "9999"}, 3, "9999"},
      {"a token that is no number", nothing, {"tokenizer", "decode", "bytes", "abc"}, 2, "abc"},
      // shards
      {"no such shard", [](const std::string& d) { fs::remove(d + "/" + kShard); }, set("train.name=new"), 2, kShard},
      {"a text for a shard", file(kShard, "this is no shard"), set("train.name=new"), 3, kShard},
      {"a shard cut short", cut_off(kShard, 0.7), set("train.name=new"), 3, kShard},
      {"an empty shard", file(kShard, ""), set("train.name=new"), 3, kShard},
      {"a bit flipped in a shard's tokens", flip_in(kShard, 0.8), {"data", "verify", kShard}, 3, kShard},
      {"a bit flipped in a shard's head", flip_in(kShard, 0.0), {"data", "verify", kShard}, 3, kShard},
      // checkpoints
      {"no such run", nothing, {"sample", "runs/none", "--prompt", "a"}, 4, "runs/none"},
      {"a checkpoint without manifest",
       [in_step](const std::string& d) { fs::remove(d + "/" + in_step("manifest.json")); },
       {"checkpoint", "verify", kStep},
       4,
       "manifest.json"},
      {"a manifest cut short", cut_off(in_step("manifest.json"), 0.5), {"checkpoint", "verify", kStep}, 4, "manifest.json"},
      {"a bit flipped in a manifest", flip_in(in_step("manifest.json"), 0.5), {"checkpoint", "verify", kStep}, 4, "manifest.json"},
      {"a checkpoint's shard cut short",
       cut_off(in_step("shard-00000.h5"), 0.9),
       {"checkpoint", "verify", kStep},
       4,
       "shard-00000.h5"},
      {"a bit flipped in a checkpoint's shard",
       flip_in(in_step("shard-00000.h5"), 0.9),
       {"checkpoint", "verify", kStep},
       4,
       "shard-00000.h5"},
      {"a checkpoint's shard gone", [in_step](const std::string& d) { fs::remove(d + "/" + in_step("shard-00000.h5")); }, train, 4,
       "shard-00000.h5"},
      {"resuming from nowhere",
       nothing,
       {"train", "config.yaml", "--set", "train.name=new", "--resume", "runs/none"},
       4,
       "runs/none"},
      {"resuming into another shape",
       nothing,
       {"train", "config.yaml", "--set", "train.name=new", "--set", "model.width=32", "--resume", kStep},
       2,
       "model.width: 16 -> 32\n",
       4},  // head_size and ffn follow
      {"resuming with another number of layers", nothing, set("model.layers=2"), 2,
       "model.layers: 1 -> 2: the checkpoint belongs to another run; take this back, or choose another train.name\n", 1},
  };
}

}  // namespace

TEST_CASE("bad input of every kind gets its exit code and one clear line, and nothing is lost") {
  const Fixture fixture;
  const std::vector<Row> rows = table();
  CHECK(rows.size() >= 40);
  for (const Row& row : rows) {
    const std::string directory = fixture.scratch / "row";
    fs::remove_all(directory);
    fs::copy(fixture.scratch / "good", directory, fs::copy_options::recursive);
    row.spoil(directory);
    const std::string metrics = read_text(directory + "/runs/good/metrics.jsonl");
    const std::string shard = read_text(directory + "/" + kShard), manifest = read_text(directory + "/" + kStep + "/manifest.json");
    const Ended ended = run_trireme(directory, row.command);
    INFO(row.what << "\n" << ended.err);
    CHECK(ended.code == row.code);
    CHECK_THAT(ended.err, ContainsSubstring(row.names));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= row.lines);
    CHECK(read_text(directory + "/runs/good/metrics.jsonl") == metrics);
    CHECK(read_text(directory + "/" + kShard) == shard);
    CHECK(read_text(directory + "/" + kStep + "/manifest.json") == manifest);
    CHECK(!fs::exists(directory + "/new/train-00000.h5"));
  }
}

}  // namespace trireme
