// trireme eval: scores a model on shards, text and multiple-choice questions.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "checkpoint/reader.h"
#include "parallel/host_collectives.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/cli/weight_source.h"
#include "train/eval/choices.h"
#include "train/run/device_choice.h"
#include "train/run/kernel_choices.h"
#include "train/run/launch_agreement.h"
#include "train/run/resume.h"
#include "train/step/host_state.h"
#include "train/step/plan.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct EvalOptions {
  static constexpr auto name = "eval";
  static constexpr auto about = "Evaluate a model: perplexity, bits per byte, multiple-choice accuracy";
  std::string from;
  std::vector<std::string> set;
  int64_t step = -1;  // of a run; -1: its newest checkpoint
  std::vector<std::string> shards, texts, choices, examples;
  int64_t shots = 0;
  std::string field = "text";
  int64_t sequences = 0;
  int64_t overlap = -1;  // tokens; -1: half the context
  std::string json;

  void visit(Options& o) {
    o("from", from, kWeightSources).required();
    o("--shards", shards, "Token shards, or directories of shards");
    o("--text", texts, kTextInputs);
    o("--choices", choices,
      "Multiple-choice questions as JSON lines: {\"context\", \"choices\", \"answer\"}, or as published by HellaSwag, ARC, MMLU or "
      "PIQA");
    o("--shots", shots, "Solved examples before each question, chosen and worded as by lm-evaluation-harness", at_least(0));
    o("--examples", examples,
      "Files of solved examples, such as a training or dev split: one for all of --choices, or one for each. Default: the other "
      "questions of the same file");
    o("--field", field, "Field of a JSON line that holds the text");
    o("--sequences", sequences, "Evaluate only this many sequences of shards and of text; 0: all", at_least(0));
    o("--overlap", overlap,
      "Tokens that a sequence repeats from the one before, as context only. Default: half the context. 0 evaluates as training "
      "does without train.eval_overlap",
      at_least(0));
    o("--step", step, "Step of the run's checkpoint; default: the newest", at_least(0));
    o.json(json);
    o.set(set);
  }
  static std::string footer() {
    return "Loss is in nats per token; perplexity is its exponential. Bits per byte: the loss of all tokens in bits, divided by "
           "the UTF-8 bytes of the text. In shards, every token except each shard's first is predicted. In text, every token is "
           "predicted, the first one after an end_of_document. The end_of_document after each document counts as a token.\n"
           "acc: the most likely choice is correct. acc_norm: the same after dividing log-likelihoods by the choices' characters.\n"
           "Under mpirun or srun, replicas share the work. The mesh is the run's own if the ranks fit it, otherwise replicas only.";
  }
};

// The config of a pass: training's rows, or about 16,000 tokens, on a mesh that fits the ranks. The rows do not depend on the
// number of ranks. There is no backward, so activations are not kept.
RunConfig for_evaluation(RunConfig config, int64_t ranks, const std::vector<std::string>& set) {
  ParallelConfig& p = config.parallel;
  const bool meant = std::ranges::any_of(set, [](const std::string& s) { return s.starts_with("parallel."); });
  if (p.exact()) p.max_tp = p.shards();
  if (!meant) {
    p.dp = 0, p.two_level = false, p.node_ranks = 0;
    if (ranks % (p.pp * p.tp) != 0) p.pp = p.tp = 1;
    if (p.shard > 0 && ranks / (p.pp * p.tp) % p.shard != 0) p.shard = 0;
  }
  p.compress = Compress::none, p.local_steps = 1, p.apart_after = 0;  // only weights are read
  p.local_moments = LocalMoments::own, p.deferred = 0;
  if (p.backward_in_halves()) p.schedule = Schedule::one_f_one_b;
  if (std::ssize(p.layers) != p.pp * p.stage_chunks()) p.layers.clear();
  TrainConfig& t = config.train;
  t.recompute = Recompute::full, t.recompute_stages = 0;
  t.offload = Offload::none;
  if (t.microbatch == 0) t.microbatch = std::clamp<int64_t>((16 << 10) / config.model.context, 1, t.batch);
  const int64_t replicas = p.dp > 0 ? p.dp : std::max<int64_t>(1, ranks / (p.pp * p.tp));
  t.batch = t.microbatch * replicas * p.pp;
  return config;
}

std::string with_count(int64_t count, const std::string& thing) { return text(count, " ", thing, count == 1 ? "" : "s"); }

// Progress in sequences, shown by rank 0 only.
class EvalProgress {
 public:
  EvalProgress(const TrainState& run, const std::string& label, int64_t total) {
    if (run.mesh.first()) bar_.emplace(label, total, human_count, "sequences");
  }
  Progressed reporter() {
    return [this](int64_t done) { bar_ ? bar_->update(done) : void(); };
  }
  void finish() { bar_ ? bar_->finish() : void(); }

 private:
  std::optional<ProgressBar> bar_;
};

class Evaluator {
 public:
  Evaluator(const EvalOptions& options, TrainState& run) : options_(options), run_(run), model_(run.config.model) {
    overlap_ = options.overlap < 0 ? model_.context / 2 : options.overlap;
    if (overlap_ >= model_.context)
      throw ConfigError(text("--overlap ", overlap_, ": must be below model.context = ", model_.context));
    const std::string& path = run.config.data.tokenizer;
    if (path.empty() && !(options.texts.empty() && options.choices.empty()))
      throw ConfigError(options.from +
                        ": its config names no data.tokenizer, which text and choices need: --set data.tokenizer=PATH");
    if (path.empty()) return;
    tokenizer_ = options.texts.empty() && options.choices.empty() ? opened_if_possible(path) : open_tokenizer(path);
    if (tokenizer_ && tokenizer_->vocab_size() > model_.vocab)
      throw DataError(text(path, ": has ", tokenizer_->vocab_size(), " tokens, but the model has ", model_.vocab,
                           ": use the tokenizer that the model was trained with"));
  }

  // Opens all inputs, so that problems are reported before anything is computed.
  void open() {
    const int64_t context = model_.context;
    if (!options_.shards.empty()) {
      corpus_.emplace(options_.shards, context, true, overlap_);
      if (corpus_->vocab() > model_.vocab)
        throw DataError(text(options_.shards.front(), ": its vocabulary has ", corpus_->vocab(), " tokens, but the model has ",
                             model_.vocab, ": use shards of the model's tokenizer"));
      if (tokenizer_) corpus_->expect_tokenizer(*tokenizer_);
    }
    if (!options_.choices.empty())
      tasks_ = open_choice_tasks(options_.choices, *tokenizer_, model_, {options_.shots, options_.examples});
    if (!options_.texts.empty()) stream_.emplace(options_.texts, options_.field, *tokenizer_, context, overlap_);
  }

  Json evaluate_all() {
    Json found;
    if (corpus_) found["shards"] = of_text(*corpus_, "shards");
    if (stream_) found["text"] = of_text(*stream_, "text");
    for (const ChoiceTask& task : tasks_) found["choices"].push_back(of_choices(task));
    return found;
  }

 private:
  void report(const std::string& line) const {
    if (run_.mesh.first()) say(line);
  }

  // Shards hold tokens: their tokenizer is only compared with the model's. Null, with a warning, if that cannot be opened.
  std::unique_ptr<Tokenizer> opened_if_possible(const std::string& path) const {
    try {
      return open_tokenizer(path);
    } catch (const DataError& error) {
      if (run_.mesh.first())
        complain(std::string(text("warning: ", error.what(), "; so the shards' tokenizer is not compared with the model's")));
      return nullptr;
    }
  }

  template <class Samples>
  Json of_text(const Samples& samples, const std::string& label) {
    const int64_t count = evaluated_sequences(options_.sequences, samples.samples());
    EvalProgress progress(run_, label, count);
    const Evaluation e = evaluate(run_, samples, count, progress.reporter());
    progress.finish();
    const double perplexity = std::exp(e.loss), rate = static_cast<double>(e.targets) / e.seconds;
    report(label + ": loss " + fixed(e.loss, 4) + " nats per token, perplexity " + significant(perplexity, 5) + ", " +
           fixed(e.bits_per_byte, 4) + " bits per byte");
    report(std::string(text("  ", e.targets, " tokens, ", std::llround(e.bytes), " bytes, overlap ", overlap_, "; ")) +
           human_seconds(e.seconds) + ", " + human_count(rate) + " tok/s");
    return {{"loss", e.loss},      {"perplexity", perplexity},       {"bits_per_byte", e.bits_per_byte},
            {"tokens", e.targets}, {"bytes", std::llround(e.bytes)}, {"sequences", count},
            {"overlap", overlap_}, {"seconds", e.seconds},           {"tokens_per_second", rate}};
  }

  Json of_choices(const ChoiceTask& task) {
    EvalProgress progress(run_, task.name(), task.sequences());
    const auto begin = Clock::now();
    const std::vector<double> likelihoods = task.likelihoods(run_, progress.reporter());
    const double seconds = seconds_since(begin);
    progress.finish();
    const ChoiceScore score = score_choices(task.questions(), likelihoods);
    report(task.name() + ": " + describe(score) + ", " + with_count(score.questions, "question") + ", " +
           with_count(task.choices(), "choice") + ", " + with_count(task.shots(), "shot") + ", " + human_seconds(seconds));
    Json by_question;
    for (auto next = likelihoods.begin(); const Question& question : task.questions()) {
      const auto end = next + std::ssize(question.choices);
      by_question.push_back(std::vector<double>(std::exchange(next, end), end));
    }
    return {{"name", task.name()},
            {"acc", score.accuracy},
            {"acc_stderr", score.accuracy_error},
            {"acc_norm", score.normalised},
            {"acc_norm_stderr", score.normalised_error},
            {"chance", score.chance},
            {"questions", score.questions},
            {"shots", task.shots()},
            {"seconds", seconds},
            {"log_likelihoods", by_question}};
  }

  const EvalOptions& options_;
  TrainState& run_;
  const ModelConfig& model_;
  int64_t overlap_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<Corpus> corpus_;
  std::optional<TextStream> stream_;
  std::vector<ChoiceTask> tasks_;
};

// Loads the weights and returns the step that they come from.
int64_t load_weights(const WeightSource& source, TrainState& run) {
  if (source.checkpoint.empty()) return initialise(source.config, run), 0;
  const CheckpointReader checkpoint(source.checkpoint);
  HostState host(run.device, run.optimizer.masters(), Copies::where_needed);
  const Manifest& manifest = checkpoint.manifest();
  checkpoint.read(host.slices(), reading_rank(run.mesh.all(), manifest, saved_layout));
  host.store();
  run.optimizer.refresh(run.device.compute(), manifest.step);
  if (run.mesh.first()) say(std::string(text("weights of ", source.checkpoint, ", step ", manifest.step)));
  return manifest.step;
}

// `json`: rank 0's. `failed` is called with an error while all that other ranks' work uses still exists.
void evaluate_on(const EvalOptions& options, const WeightSource& source, World& world, std::optional<JsonOutput>& json,
                 const std::function<void(const std::exception&)>& failed) {
  const RunConfig& config = source.config;
  Device device = open_device(config.kernels_of_run(), world.core_sharers(), world.local_rank());
  Mesh mesh(world, config.parallel);
  const Plan plan = make_plan(config, mesh);
  mesh.connect(device);
  const std::string directory =
      source.checkpoint.empty() ? config.train.directory() : fs::path(source.checkpoint).parent_path().parent_path().string();
  choose_kernels(config, plan, mesh, device, {.directory = directory});
  TrainState run(config, mesh, device, plan.sizes);
  Evaluator evaluator(options, run);
  try {
    evaluator.open();
    const int64_t step = load_weights(source, run);
    Json found{{"weights", source.directory()}, {"step", step}};
    found.update(evaluator.evaluate_all());
    run.sync.join();
    if (json) json->write(found);
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

ExitCode run_eval(const EvalOptions& options) {
  if (options.shards.empty() && options.texts.empty() && options.choices.empty())
    throw ConfigError("trireme eval: needs --shards, --text or --choices");
  if (options.choices.empty() && (options.shots > 0 || !options.examples.empty()))
    throw ConfigError("--shots and --examples: need --choices");
  if (options.shots == 0 && !options.examples.empty()) throw ConfigError("--examples: needs --shots K");
  World world({.say = complain});
  const Comm all("all", 0, world.rank(), world.launched());
  std::string checkpoint;
  std::optional<JsonOutput> json;  // rank 0's
  AgreedConfig agreed;
  const auto failed = [&](const std::exception& error) {
    if (world.size() > 1) end_all_ranks(world, agreed.config ? &*agreed.config : nullptr, error, [&json] { json.reset(); });
  };
  try {
    agreed = agree_on_config(all, [&] {
      WeightSource source = find_weights({.from = options.from, .set = options.set, .step = options.step});
      checkpoint = source.checkpoint;
      RunConfig meant = for_evaluation(std::move(source.config), world.size(), options.set);
      require_mesh(meant, world.size(), 0);
      choose_device(meant);
      json.emplace(options.json);
      return meant;
    });
    if (!agreed.config) return agreed.refusal;
    evaluate_on(options, {*agreed.config, broadcast(all, checkpoint)}, world, json, failed);
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> eval_command() { return make_command<EvalOptions>(run_eval); }

}  // namespace trireme
