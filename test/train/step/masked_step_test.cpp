// Steps and evaluations of packed shards and of shards with loss masks, compared with losses by
// hand and with single documents.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "data/build/build.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "test/train/tiny_mesh.h"
#include "train/eval/evaluate.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

const Mesh kAlone;

RunConfig of_bytes(const std::string& model, int64_t context, int64_t batch) {
  RunConfig config = tiny(model);
  config.model.layers = 2, config.model.vocab = 257, config.model.context = context;
  config.model.document_mask = config.model.restart_positions = true;
  config.train.batch = batch, config.train.microbatch = 1;
  config.resolve();
  return config;
}

struct Stepping {
  RunConfig config;
  Device device{Place::cpu, read_cpu_facts()};
  TrainState run;
  explicit Stepping(const RunConfig& wanted) : config(wanted), run(config, kAlone, device, make_plan(config, kAlone).sizes) {
    run.optimizer.initialise(device.compute(), 0.1, config.model.layers);
  }
};

// The sum of the losses of a row's targets, in double precision from its logits.
double loss_by_hand(Stepping& stepping, const Batch& batch, int64_t row) {
  const auto context = static_cast<size_t>(stepping.config.model.context), vocab = static_cast<size_t>(stepping.config.model.vocab);
  std::vector<float> logits(context * vocab);
  const Microbatch part = microbatch(batch, row, 1);
  Stream& compute = stepping.device.compute();
  stepping.run.stage.forward(compute, part, stepping.run.hooks);
  stepping.run.stage.logits(
      compute, part, Tensor(logits.data(), Dtype::f32, Place::cpu, {static_cast<int64_t>(context), static_cast<int64_t>(vocab)}));
  double sum = 0;
  for (size_t t = 0; t < context; ++t) {
    const int32_t target = part.targets.as<int32_t>()[t];
    if (target < 0) continue;
    double exponentials = 0;
    for (size_t v = 0; v < vocab; ++v) exponentials += std::exp(static_cast<double>(logits[t * vocab + v]));
    const double lse = std::log(exponentials);
    sum += lse - static_cast<double>(logits[t * vocab + static_cast<size_t>(target)]) + stepping.config.model.z_loss * lse * lse;
  }
  return sum;
}

std::string shard_of_lines(const Scratch& scratch, const std::string& name, const std::string& lines,
                           const DocumentOptions& documents, int64_t pack_context = 0) {
  write_text(scratch / (name + ".jsonl"), lines);
  BuildOptions options;
  options.documents = documents, options.pack_context = pack_context;
  options.inputs = {scratch / (name + ".jsonl")};
  options.output = scratch / name;
  return build_shards(options, *make_byte_tokenizer(), [](const BuildProgress&) {}).train.shards.at(0);
}

std::string letters(uint64_t seed, size_t count) {
  std::string words(count, 'a');
  for (size_t i = 0; i < count; ++i) words[i] = static_cast<char>('a' + philox64(seed, i) % 26);
  return words;
}

}  // namespace

TEST_CASE("the loss of a step is the mean over the responses' tokens, also where microbatches have none") {
  for (const char* model : {"gpt2", "llama"}) {
    const Scratch scratch;
    std::string lines;
    for (uint64_t i = 0; i < 5; ++i)
      lines += "{\"p\": \"" + letters(i, i == 3 ? 60 : 7 + i) + "\", \"r\": \"" + letters(90 + i, 3 + 2 * i) + "\"}\n";
    const Corpus corpus({shard_of_lines(scratch, "in", lines, {.prompt = "p", .response = "r"})}, 16, false);
    REQUIRE(corpus.samples() >= 8);
    int64_t without = 0;
    for (int64_t sample = 0; sample < corpus.samples(); ++sample) without += corpus.targets(sample) == 0 ? 1 : 0;
    REQUIRE(without >= 2);

    Stepping stepping(of_bytes(model, 16, corpus.samples()));
    Loader loader(
        corpus,
        {.context = 16, .batch = corpus.samples(), .microbatch = 1, .seed = 3, .document_mask = true, .restart_positions = true});
    for (int64_t step = 0; step < 2; ++step) {
      const Batch batch = loader.next();
      CHECK(batch.valid == corpus.targets());
      double sum = 0;
      for (int64_t row = 0; row < corpus.samples(); ++row) sum += loss_by_hand(stepping, batch, row);
      const StepResult result = train_step(stepping.run, batch, step);
      CHECK(result.loss == Approx(sum / static_cast<double>(batch.valid)).epsilon(1e-5));
      CHECK(std::isfinite(result.grad_norm));
      CHECK(result.grad_norm > 0);
    }
    CHECK(evaluate(stepping.run, corpus, 0).targets == corpus.targets());
  }
}

TEST_CASE("a step without a single target has no loss and no gradient, and the next one continues") {
  const Scratch scratch;
  const ShardFacts facts{.tokenizer = "bytes", .vocab = 257, .end_of_document = 256, .text_bytes = 65};
  std::vector<uint8_t> trained(65, 0);
  std::fill(trained.begin() + 33, trained.end(), 1);
  std::vector<int32_t> tokens(65);
  std::iota(tokens.begin(), tokens.end(), 65);
  write_shard(scratch / "a.h5", facts, tokens, std::vector<int64_t>{0}, {.trained = trained});
  const Corpus corpus({scratch / "a.h5"}, 16, false);
  std::vector<int32_t> ids(static_cast<size_t>(2 * 4 * 2 * 16));
  const auto batch_of = [&](int64_t first) {  // samples `first` and the next
    const auto field = [&](int64_t i) { return ids.data() + 2 * 16 * i; };
    for (int64_t row = 0; row < 2; ++row)
      corpus.read(first + row, true, true, {field(0) + 16 * row, field(1) + 16 * row, field(2) + 16 * row, field(3) + 16 * row});
    const auto tensor = [&](int64_t i) { return Tensor(field(i), Dtype::i32, Place::cpu, {2, 16}); };
    return Batch{.tokens = tensor(0),
                 .targets = tensor(1),
                 .positions = tensor(2),
                 .document_start = tensor(3),
                 .valid = corpus.targets(first) + corpus.targets(first + 1)};
  };
  for (const Numerics numerics : {Numerics::fast, Numerics::invariant}) {
    RunConfig config = of_bytes("llama", 16, 2);
    config.parallel.numerics = numerics;
    config.resolve();
    Stepping stepping(config);
    const StepResult empty = train_step(stepping.run, batch_of(0), 0);
    CHECK(batch_of(0).valid == 0);
    CHECK(empty.loss == 0);
    CHECK(empty.grad_norm == 0);
    const StepResult next = train_step(stepping.run, batch_of(2), 1);
    CHECK(std::isfinite(next.loss));
    CHECK(next.loss > 1);
    CHECK(next.grad_norm > 0);
  }
}

TEST_CASE("packed rows have the losses of their documents for themselves") {
  constexpr int64_t T = 48;
  for (const char* model : {"gpt2", "llama"}) {
    const Scratch scratch;
    std::string lines;
    std::vector<std::string> alone;
    for (uint64_t i = 0; i < 12; ++i) {
      const std::string line = "{\"text\": \"" + letters(i, 2 + philox64(7, i) % 45) + "\"}\n";
      lines += line;
      alone.push_back(shard_of_lines(scratch, "alone" + std::to_string(i), line, {}));
    }
    const Corpus packed({shard_of_lines(scratch, "packed", lines, {}, T)}, T, false);
    REQUIRE(packed.samples() < 10);
    Stepping stepping(of_bytes(model, T, 1));
    const Evaluation together = evaluate(stepping.run, packed, 0);
    double sum = 0;
    int64_t targets = 0;
    for (const std::string& path : alone) {
      const Evaluation one = evaluate(stepping.run, Corpus({path}, T, true), 0);
      sum += static_cast<double>(one.loss) * static_cast<double>(one.targets);
      targets += one.targets;
    }
    CHECK(together.targets == targets);
    CHECK(together.loss == Approx(sum / static_cast<double>(targets)).epsilon(2e-6));
    // If documents see one another, the loss differs.
    stepping.config.model.document_mask = stepping.config.model.restart_positions = false;
    CHECK(std::abs(evaluate(stepping.run, packed, 0).loss - together.loss) > 1e-4f);
  }
}

TEST_CASE("data build packs, masks and reports both, and so does data info") {
  const Scratch scratch;
  std::string lines;
  for (uint64_t i = 0; i < 50; ++i) lines += "{\"p\": \"" + letters(i, 10) + "\", \"r\": \"" + letters(i, 5 + i) + "\"}\n";
  write_text(scratch / "in.jsonl", lines);
  const auto build = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> words{"data", "build", "in.jsonl", "--output", output, "--tokenizer", "bytes"};
    words.insert(words.end(), more.begin(), more.end());
    return run_trireme(scratch.path(), words);
  };
  const Ended packed = build("packed", {"--prompt-field", "p", "--response-field", "r", "--pack", "best-fit", "--context", "64"});
  INFO(packed.err);
  CHECK(packed.code == 0);
  // Responses and their ends, but the end that is left over of the one that is a token too long.
  CHECK_THAT(packed.out, ContainsSubstring("train: 1524 tokens are targets, 70.04 %"));
  CHECK_THAT(packed.out, ContainsSubstring("train: packed in ") && ContainsSubstring("1 documents are longer than a row and cut"));
  CHECK_THAT(run_trireme(scratch.path(), {"data", "info", "packed"}).out,
             ContainsSubstring("% of the tokens, packed in rows of 64"));
  const Ended plain = build("plain", {"--field", "p", "--context", "64"});
  CHECK_THAT(plain.out, ContainsSubstring("train: samples of 64 tokens cut 16.00 % of the documents"));
  CHECK(build("x", {"--prompt-field", "p"}).code == 2);
  CHECK(build("x", {"--prompt-field", "p", "--response-field", "r", "--messages-field", "m"}).code == 2);
  CHECK_THAT(build("x", {"--pack", "best-fit"}).err, ContainsSubstring("--pack best-fit: needs --context"));
}

}  // namespace trireme
