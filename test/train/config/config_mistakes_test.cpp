// Mistakes in a configuration: every kind, all of them at once.
#include <algorithm>
#include <string>
#include <vector>

#include "test/catch.h"
#include "test/train/config/config_text.h"
#include "train/config/nearest.h"

using namespace trireme;

namespace {

std::string repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

}  // namespace

TEST_CASE("every mistake is one line that names the place, the value and the remedy") {
  struct Case {
    std::string file;
    std::vector<std::string> overrides;
    std::string line;
  };
  const std::vector<Case> cases = {
      // the file as a whole
      {"", {}, "x.yaml: is empty; the sections are kernels, parallel, model, data, checkpoint, train, report"},
      {"# only a comment\n", {}, "x.yaml: is empty; the sections are kernels, parallel, model, data, checkpoint, train, report"},
      {"just words\n", {}, "x.yaml:1: must hold sections (kernels, parallel, model, data, checkpoint, train, report)"},
      {"- model\n- data\n", {}, "x.yaml:1: must hold sections (kernels, parallel, model, data, checkpoint, train, report)"},
      {std::string("model:\n  layers: 3\0\n", 20), {}, "x.yaml:2: holds control characters; is this a text file?"},
      {"\x89PNG\x01", {}, "x.yaml:1: holds control characters; is this a text file?"},
      {"model:\n\tlayers: 3\n", {}, "x.yaml:2: is indented with a tab; YAML wants spaces"},
      {"model:\n  \tlayers: 3\n", {}, "x.yaml:2: is indented with a tab; YAML wants spaces"},
      {repeated("# 64 bytes of comment ..........................................\n", 17000),
       {},
       "x.yaml: 1105000 bytes are too many for a config, which is a few lines of YAML, at most 1048576"},
      {repeated("[", 100000), {}, "x.yaml:1: nested too deeply; a config has sections, keys and lists"},
      {repeated("{a: ", 100000), {}, "x.yaml:1: nested too deeply; a config has sections, keys and lists"},
      {repeated("- ", 100000), {}, "x.yaml:1: nested too deeply; a config has sections, keys and lists"},
      {"model: &m\n  layers: 3\ntrain: *m\n", {}, "x.yaml:1: anchors (&) are not used in a config"},
      {"model:\n  layers: !!int 3\n", {}, "x.yaml:2: tags (!) are not used in a config"},
      {"model:\n  layers: 3\n---\nmodel:\n", {}, "x.yaml:3: a second document begins; a config is one document"},
      // sections
      {"modle:\n  layers: 3\n", {}, "x.yaml:1: modle: unknown section; did you mean model?"},
      {"optimizer:\n  lr: 3\n", {}, "x.yaml:1: optimizer: unknown section; did you mean train?"},
      {"zoo:\n  lr: 3\n",
       {},
       "x.yaml:1: zoo: unknown section; there are kernels, parallel, model, data, checkpoint, train, report"},
      {"learning_rate: 3e-4\n", {}, "x.yaml:1: learning_rate: unknown section; did you mean train.lr?"},
      {"steps: 3\n", {}, "x.yaml:1: steps: unknown section; did you mean train.steps?"},
      {"model: 7\n", {}, "x.yaml:1: model: must hold keys, indented below it"},
      {"model: [7]\n", {}, "x.yaml:1: model: must hold keys, indented below it"},
      {"model:\n  layers: 3\ntrain:\n  steps: 200\nmodel:\n  layers: 4\n", {}, "x.yaml:5: model: appears twice, first in line 1"},
      {"[model]: 3\n", {}, "x.yaml:1: a name is missing before ':'"},
      // keys
      {"model:\n  layer: 3\n", {}, "x.yaml:2: model.layer: unknown key; did you mean model.layers?"},
      {"model:\n  haeds: 3\n", {}, "x.yaml:2: model.haeds: unknown key; did you mean model.heads?"},
      {"model:\n  lr: 3\n", {}, "x.yaml:2: model.lr: unknown key; did you mean train.lr?"},
      {"checkpoint:\n  dropout: 3\n", {}, "x.yaml:2: checkpoint.dropout: unknown key; dropout is not supported"},
      {"checkpoint:\n  zebra: 3\n", {}, "x.yaml:2: checkpoint.zebra: unknown key; trireme train --help lists all keys"},
      {"train:\n  learning_rate: 3\n", {}, "x.yaml:2: train.learning_rate: unknown key; did you mean train.lr?"},
      {"train:\n  max_iterz: 3\n", {}, "x.yaml:2: train.max_iterz: unknown key; did you mean train.steps?"},
      {"train:\n  num_train_epochs: 3\n",
       {},
       "x.yaml:2: train.num_train_epochs: unknown key; did you mean train.steps (in steps)?"},
      {"model:\n  n-layer: 3\n", {}, "x.yaml:2: model.n-layer: unknown key; did you mean model.layers?"},
      {"model:\n  layers: 3\n  layers: 4\n", {}, "x.yaml:3: model.layers: appears twice, first in line 2"},
      {"model:\n  layers:\n", {}, "x.yaml:2: model.layers: has no value"},
      {"model:\n  layers: ~\n", {}, "x.yaml:2: model.layers: has no value"},
      {"model:\n  layers: {a: 3}\n", {}, "x.yaml:2: model.layers: holds keys of its own; it must be one value"},
      // values
      {"model:\n  layers: three\n", {}, "x.yaml:2: model.layers = three: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 0\n", {}, "x.yaml:2: model.layers = 0: must be a whole number, 1 to 100000"},
      {"model:\n  layers: -3\n", {}, "x.yaml:2: model.layers = -3: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 3.5\n", {}, "x.yaml:2: model.layers = 3.5: must be a whole number, 1 to 100000"},
      {"model:\n  layers: \"3\"\n", {}, "x.yaml:2: model.layers = \"3\": must be a whole number, 1 to 100000"},
      {"model:\n  layers: [3]\n", {}, "x.yaml:2: model.layers = [3]: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 1_000\n", {}, "x.yaml:2: model.layers = 1_000: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 0x10\n", {}, "x.yaml:2: model.layers = 0x10: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 010\n", {}, "x.yaml:2: model.layers = 010: must be a whole number, 1 to 100000"},
      {"model:\n  layers: 3 4\n", {}, "x.yaml:2: model.layers = 3 4: must be a whole number, 1 to 100000"},
      {"train:\n  seed: 9223372036854775808\n",
       {},
       "x.yaml:2: train.seed = 9223372036854775808: must be a whole number, at least 0"},
      {"train:\n  seed: 1e300\n", {}, "x.yaml:2: train.seed = 1e300: must be a whole number, at least 0"},
      {"train:\n  lr: 0\n", {}, "x.yaml:2: train.lr = 0: must be a number, above 0"},
      {"train:\n  lr: nan\n", {}, "x.yaml:2: train.lr = nan: must be a number, above 0"},
      {"train:\n  lr: .inf\n", {}, "x.yaml:2: train.lr = .inf: must be a number, above 0"},
      {"train:\n  lr: -inf\n", {}, "x.yaml:2: train.lr = -inf: must be a number, above 0"},
      {"train:\n  lr: 1e999\n", {}, "x.yaml:2: train.lr = 1e999: must be a number, above 0"},
      {"train:\n  lr: 1e-3x\n", {}, "x.yaml:2: train.lr = 1e-3x: must be a number, above 0"},
      {"train:\n  min_lr: 1.5\n", {}, "x.yaml:2: train.min_lr = 1.5: must be a number, 0 to 1"},
      {"train:\n  beta1: 1\n", {}, "x.yaml:2: train.beta1 = 1: must be below 1"},
      {"model:\n  tied: yes\n", {}, "x.yaml:2: model.tied = yes: must be true or false"},
      {"model:\n  tied: 1\n", {}, "x.yaml:2: model.tied = 1: must be true or false"},
      {"train:\n  schedule: cosin\n", {}, "x.yaml:2: train.schedule = cosin: must be constant, linear, cosine or wsd"},
      {"kernels:\n  dtype: fp16\n", {}, "x.yaml:2: kernels.dtype = fp16: must be f32 or bf16"},
      {"kernels:\n  logits: f64\n", {}, "x.yaml:2: kernels.logits = f64: must be auto, f32 or bf16"},
      {"kernels:\n  dtype: f32\n  logits: bf16\n",
       {},
       "x.yaml:3: kernels.logits = bf16: must be f32 or auto with kernels.dtype = f32"},
      {"kernels:\n  dtype: f32\n  matmul: fp8\n",
       {},
       "x.yaml:3: kernels.matmul = fp8: must be auto with kernels.dtype = f32; or set kernels.dtype = "
       "bf16"},
      {"kernels: {matmul: fp8}\nmodel: {width: 96, heads: 4, ffn: 72, context: 6, layers: 2}\ntrain: {microbatch: 2}\n",
       {"kernels.bf16_layers=1"},
       "x.yaml:2: model.ffn = 72: with kernels.matmul = fp8 the hidden width (72) must be a multiple of 16; or set that to auto\n"
       "x.yaml:2: model.context = 6: with kernels.matmul = fp8 the tokens of a microbatch (12) must be a multiple of 16; or set "
       "that "
       "to auto\n"
       "--set kernels.bf16_layers=1: leaves none of the 2 layers to kernels.matmul = fp8"},
      {"parallel: {pp: 2, layers: [1, 2, 1]}\nmodel: {layers: 4}\n",
       {},
       "x.yaml:1: parallel.layers = [1, 2, 1]: has 3 numbers, but the pipeline has 2 pieces; or set it to []"},
      {"parallel: {pp: 2, layers: [1, 2]}\nmodel: {layers: 4}\n",
       {},
       "x.yaml:1: parallel.layers = [1, 2]: adds up to 3, but model.layers = 4"},
      {"parallel: {pp: 2, layers: [4, -1]}\nmodel: {layers: 4}\n",
       {},
       "x.yaml:1: parallel.layers = [4, -1]: must be a list of numbers, at least 0"},
      {"parallel: {pp: 2, layers: [1.75, 2.25]}\nmodel: {layers: 4}\n",
       {},
       "x.yaml:1: parallel.layers = [1.75, 2.25]: must be whole layers or halves, such as 8.5"},
      {"parallel: {pp: 3, layers: [2, 0, 2]}\nmodel: {layers: 4}\n",
       {},
       "x.yaml:1: parallel.layers = [2, 0, 2]: has a 0: only the first piece, with the embedding, and the last, with the head, "
       "need none"},
      {"parallel: {pp: 4, layers: [0, 1.5, 2.5, 0]}\nmodel: {layers: 4}\n", {}, ""},
      {"parallel: {pp: 2}\ntrain: {recompute: full, recompute_stages: 3}\n",
       {},
       "x.yaml:2: train.recompute_stages = 3: must not exceed parallel.pp = 2"},
      {"parallel: {pp: 2, deferred: 1}\n", {}, "x.yaml:1: parallel.deferred = 1: needs parallel.schedule = zero_bubble"},
      {"parallel: {pp: 2, schedule: zero_bubble, deferred: 1}\ntrain: {recompute: full}\n", {}, ""},
      {"parallel: {pp: 2, schedule: zero_bubble_v}\ntrain: {recompute: selective}\nmodel: {layers: 2}\n", {}, ""},
      {"train: {recompute_stages: 1}\nparallel: {unit_size: 1}\n",
       {},
       "x.yaml:1: train.recompute_stages = 1: needs train.recompute = selective or full\n"
       "x.yaml:2: parallel.unit_size = 1: needs parallel.zero = 2 or 3"},
      {"parallel: {pp: 9}\nmodel: {layers: 4}\ntrain: {batch: 9}\n",
       {},
       "x.yaml:1: parallel.pp = 9: must not exceed twice model.layers = 4: a piece has half a layer at least"},
      {"kernels:\n  attention: flash\n", {}, "x.yaml:2: kernels.attention = flash: must be auto, ours or cudnn"},
      {"kernels:\n  attention: cudnn\n", {}, ""},
      {"kernels:\n  attention: cudnn\n  device: cpu\n",
       {},
       "x.yaml:2: kernels.attention = cudnn: is for GPUs: set kernels.device to cuda, or kernels.attention to auto"},
      {"kernels: {attention: cudnn, device: cuda}\n", {}, ""},
      {"kernels:\n  products: mkl\n", {}, "x.yaml:2: kernels.products = mkl: must be auto, onednn or ours"},
      {"train:\n  name: [a, b]\n", {}, "x.yaml:2: train.name = [a, b]: must be a text"},
      {"train:\n  name: a/b\n",
       {},
       "x.yaml:2: train.name = a/b: must be the name of a directory, without '/' and of at most 200 bytes"},
      {"train:\n  name: ..\n",
       {},
       "x.yaml:2: train.name = ..: must be the name of a directory, without '/' and of at most 200 bytes"},
      {"data:\n  train: [a, [b]]\n", {}, "x.yaml:2: data.train: an element must be one value"},
      {"data:\n  train: [a, \"\"]\n", {}, "x.yaml:2: data.train = [a, ]: must be a list of paths"},
      // keys that do not go together
      {"model:\n  width: 100\n  heads: 8\n", {}, "x.yaml:2: model.width = 100: must be a multiple of model.heads = 8"},
      {"model:\n  width: 4\n  heads: 8\n", {}, "x.yaml:2: model.width = 4: must be at least model.heads = 8"},
      {"model:\n  heads: 4\n  kv_heads: 3\n", {}, "x.yaml:3: model.kv_heads = 3: must divide model.heads = 4"},
      {"model:\n  heads: 4\n  width: 20\n",
       {},
       "x.yaml: model.head_size = 5 (not set): must be even, since RoPE turns pairs; by default it is model.width / model.heads"},
      {"model:\n  family: gpt2\n  qk_norm: true\n", {}, "x.yaml:3: model.qk_norm = true: needs model.family = llama"},
      {"kernels:\n  dtype: f32\ntrain:\n  rounding: stochastic\n",
       {},
       "x.yaml:4: train.rounding = stochastic: must be nearest with kernels.dtype = f32, whose weights are the masters; or set "
       "kernels.dtype = bf16"},
      {"train:\n  offload: optimizer\n", {}, ""},
      {"train:\n  offload: optimizer\n",
       {"kernels.device=cpu"},
       "x.yaml:2: train.offload = optimizer: must be none with kernels.device = cpu, whose memory is the host's"},
      {"train:\n  offload: all\n", {}, "x.yaml:2: train.offload = all: must be none or optimizer"},
      {"train:\n  rounding: up\n", {}, "x.yaml:2: train.rounding = up: must be nearest or stochastic"},
      {"train:\n  batch: 12\n  microbatch: 5\n", {}, "x.yaml:3: train.microbatch = 5: must divide train.batch / parallel.dp = 12"},
      {"train:\n  batch: 4\n  microbatch: 8\n", {}, "x.yaml:3: train.microbatch = 8: must divide train.batch / parallel.dp = 4"},
      {"train:\n  steps: 1e12\n  batch: 1e6\n",
       {},
       "x.yaml:2: train.steps = 1e12: times train.batch times model.context is more tokens than 63 bits count"},
      {"parallel:\n  cp: 2\n",
       {},
       "x.yaml:2: parallel.cp = 2: context parallelism is not supported yet: must be 1; to split rows, set "
       "parallel.tp and parallel.sequence"},
      {"parallel:\n  ep: 2\n", {}, "x.yaml:2: parallel.ep = 2: experts are not supported yet: must be 1"},
      {"parallel:\n  tp: 3\nmodel:\n  ffn: 768\n", {}, "x.yaml:2: parallel.tp = 3: must divide model.heads = 4"},
      {"parallel:\n  pp: 13\n",
       {},
       "x.yaml:2: parallel.pp = 13: must not exceed twice model.layers = 6: a piece has half a layer at least"},
      {"parallel:\n  chunks: 2\n", {}, "x.yaml:2: parallel.chunks = 2: needs parallel.schedule = interleaved"},
      {"parallel:\n  dp: 3\ntrain:\n  batch: 4\n", {}, "x.yaml:4: train.batch = 4: must be a multiple of parallel.dp = 3"},
      // overrides
      {"model:\n", {"model.heads=seven"}, "--set model.heads=seven: must be a whole number, 1 to 1048576"},
      {"model:\n", {"model.heads=3"}, "x.yaml: model.width = 256 (not set): must be a multiple of model.heads = 3"},
      {"model:\n", {"model.kv_heads=3"}, "--set model.kv_heads=3: must divide model.heads = 4"},
      {"model:\n", {"model.heads="}, "--set model.heads=: must be a whole number, 1 to 1048576"},
      {"model:\n", {"model.heads"}, "--set model.heads: has no value; write model.heads=VALUE"},
      {"model:\n", {"model.haeds"}, "--set model.haeds: must be section.key=value"},
      {"model:\n", {"learning_rate=3"}, "--set learning_rate=3: must be section.key=value; did you mean train.lr?"},
      {"model:\n", {"train.learning_rate=3"}, "--set train.learning_rate=3: unknown key; did you mean train.lr?"},
      {"model:\n", {"layers=3"}, "--set layers=3: must be section.key=value; did you mean model.layers?"},
      {"model:\n", {"layers=3.5"}, "--set layers=3.5: must be section.key=value; did you mean model.layers?"},
      {"model:\n", {""}, "--set : must be section.key=value"},
      {"model:\n", {"=."}, "--set =.: must be section.key=value"},
      {"model:\n", {"modell.layers=3"}, "--set modell.layers=3: unknown section; did you mean model?"},
      {"model:\n", {"model.layrs=3"}, "--set model.layrs=3: unknown key; did you mean model.layers?"},
      {"model:\n", {"data.train=a,,b"}, "--set data.train=a,,b: must be a list of paths"},
      {"model:\n", {"train.name=\xff"}, "--set train.name=\xff: must be a text"},
  };
  for (const Case& c : cases) {
    INFO("file:\n" << c.file.substr(0, 300) << "\noverrides: " << (c.overrides.empty() ? "" : c.overrides[0]));
    CHECK(complaint(c.file, c.overrides) == c.line);
  }
}

TEST_CASE("text that is not valid YAML is reported with its place") {
  for (const std::string bad :
       {"model: {layers: 3\n", "model:\n  layers: 3\n width: 4\n", "model:\n  layers: [3\n", "model:\n  - 3\n  layers: 3\n",
        "model:\n  name: 'a' b\n", "model:\n  layers: @3\n", "}\n", "model:\n  a: \"\\q\"\n"}) {
    INFO(bad);
    const std::string line = complaint(bad);
    CHECK(line.starts_with("x.yaml:"));
    CHECK(std::isdigit(line[7]));
    CHECK_THAT(line, ContainsSubstring(": is not valid YAML: "));
    CHECK(std::ranges::count(line, '\n') == 0);
  }
  CHECK_THAT(complaint("model:\n", {"data.train=[a"}),
             ContainsSubstring("--set data.train=[a:1:") && ContainsSubstring(": is not valid YAML: "));
}

TEST_CASE("all mistakes of the file and of the command line are reported at once") {
  CHECK(complaint("modle:\nmodel:\n  layers: x\n  haeds: 3\ntrain:\n  beta1: 1\n", {"train.lr=-1", "nothing"}) ==
        "x.yaml:1: modle: unknown section; did you mean model?\n"
        "x.yaml:3: model.layers = x: must be a whole number, 1 to 100000\n"
        "x.yaml:4: model.haeds: unknown key; did you mean model.heads?\n"
        "--set train.lr=-1: must be a number, above 0\n"
        "--set nothing: must be section.key=value\n"
        "x.yaml:6: train.beta1 = 1: must be below 1");
}

TEST_CASE("an unreadable file does not hide what is wrong with the overrides") {
  CHECK_THAT(complaint("model: [", {"train.lr=-1"}),
             ContainsSubstring("is not valid YAML: ") && ContainsSubstring("\n--set train.lr=-1: must be a number, above 0"));
}

TEST_CASE("consequences of a refused value are not reported") {
  CHECK(complaint("model:\n  width: 252\n  heads: zehn\n") == "x.yaml:3: model.heads = zehn: must be a whole number, 1 to 1048576");
  CHECK(complaint("model:\n  width: 250\n  head: 10\n") == "x.yaml:3: model.head: unknown key; did you mean model.heads?");
}

TEST_CASE("a file of nothing but mistakes gets a bounded answer") {
  std::string file = "model:\n";
  for (int i = 0; i < 1000; ++i) file += "  unknown" + std::to_string(i) + ": 3\n";
  const std::string message = complaint(file);
  CHECK(std::ranges::count(message, '\n') == 50);
  CHECK_THAT(message, ContainsSubstring("\n... and 950 more problems"));
}

TEST_CASE("a file that is not there is named, with the one that was meant") {
  const ConfigFile file("model:\n");
  const std::string folder = file.folder;
  CHECK_THROWS_WITH(read_config(folder + "/y.yaml", {}),
                    folder + "/y.yaml: cannot be read: No such file or directory; did you mean " + file.path + "?");
  CHECK_THROWS_WITH(read_config("/no/such/place", {}), "/no/such/place: cannot be read: No such file or directory");
  CHECK_THROWS_WITH(read_config(folder, {}), folder + ": is a directory; name a YAML file");
  CHECK_THROWS_WITH(read_config("", {}), ContainsSubstring("cannot be read"));
}

TEST_CASE("training needs data, a plan does not") {
  CHECK(complaint("model:\n", {}, Purpose::train) ==
        "x.yaml: data.train = [] (not set): names no token shards; make some with 'trireme data build'");
  CHECK(complaint("data:\n  train: [a]\n", {}, Purpose::train) == "");
  CHECK(complaint("model:\n", {}, Purpose::plan) == "");
}

TEST_CASE("the nearest word is found, and no word when none is near") {
  const std::vector<std::string> words = {"layers", "width", "heads", "kv_heads"};
  CHECK(nearest("layer", words) == "layers");
  CHECK(nearest("haeds", words) == "heads");
  CHECK(nearest("kvheads", words) == "kv_heads");
  CHECK(nearest("dropout", words) == "");
  CHECK(nearest("", words) == "");
  CHECK(nearest(std::string(1000000, 'x'), words) == "");
}
