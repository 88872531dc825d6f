// RunConfig, the whole configuration, and its section `train:`. Read from and written to YAML.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "checkpoint/config.h"
#include "data/config.h"
#include "data/loader/mixture_schedule.h"
#include "kernels/config.h"
#include "kernels/rounding.h"
#include "model/shards.h"
#include "parallel/config.h"
#include "train/config/copies_check.h"
#include "train/config/step_ranges.h"
#include "train/telemetry/config.h"
#include "train/telemetry/price.h"

namespace trireme {

enum class LrSchedule { constant, linear, cosine, wsd };

template <>
struct Names<LrSchedule> {
  static constexpr std::array<std::string_view, 4> words{"constant", "linear", "cosine", "wsd"};
};

enum class Offload { none, optimizer };

template <>
struct Names<Offload> {
  static constexpr std::array<std::string_view, 2> words{"none", "optimizer"};
};

// Reaction to a step whose loss or gradients are not finite or are a spike.
enum class BadStep { skip, rollback, stop };

template <>
struct Names<BadStep> {
  static constexpr std::array<std::string_view, 3> words{"skip", "rollback", "stop"};
};

// Reaction to a rank whose work takes longer than that of its peers.
enum class OnStraggler { warn, stop };

template <>
struct Names<OnStraggler> {
  static constexpr std::array<std::string_view, 2> words{"warn", "stop"};
};

struct TrainConfig {
  static constexpr double kAutomatic = -1;
  std::string name = "run", runs = "runs", init_from;
  int64_t steps = 1000, batch = 16, microbatch = 0, seed = 1;
  double lr = 1e-3, min_lr = 0.1;
  int64_t warmup = 100;
  LrSchedule schedule = LrSchedule::cosine;
  double cooldown = 0.2;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, clip = 1.0;
  BadStep on_bad_step = BadStep::skip;
  double spike_sigmas = 0;
  StepRanges leave_out{}, profile{};
  Rounding rounding = Rounding::nearest;
  int64_t eval_every = 100, eval_sequences = 0, log_every = 1, compare_every = 1000;
  double eval_overlap = 0, hang_after = kAutomatic;
  std::vector<std::string> eval_choices{};
  Recompute recompute = Recompute::none;
  int64_t recompute_stages = 0;
  Offload offload = Offload::none;
  double straggler_ratio = 1.07;
  OnStraggler on_straggler = OnStraggler::warn;
  bool check_start = false;
  std::string price{};
  double grid_gco2_per_kwh = 0;

  std::string directory() const { return runs + "/" + name; }  // of the run

  void visit(auto& keys) {
    keys("name", name, "the run directory is runs/NAME");
    keys("runs", runs, "directory of run directories", paths());
    keys("init_from", init_from,
         "directory of published weights (config.json, safetensors) for a run without checkpoints: GPT-2, Llama, Mistral, "
         "Qwen2, Qwen3; empty: random weights",
         paths());
    keys("steps", steps, "optimizer steps", between(1, 1e12));
    keys("batch", batch, "sequences of one optimizer step, over all replicas", between(1, 1e9).identity());
    keys("microbatch", microbatch, "sequences of one forward pass on one replica; 0 takes the replica's whole batch",
         between(0, 1e9));
    keys("recompute", recompute,
         "recomputation in backward to save memory; selective: norms and activation functions (for gpt2 on a GPU, last bits "
         "differ); full: whole blocks");
    keys("recompute_stages", recompute_stages, "pipeline stages, the first, that recompute: they hold the most activations; 0: all",
         between(0, 1e6));
    keys("offload", offload,
         "state that a GPU keeps in pinned host memory; optimizer: masters, moments and what copies have left out");
    keys("seed", seed, "random seed of the initial weights and the data order", at_least(0).identity());
    keys("lr", lr, "peak learning rate", above(0));
    keys("min_lr", min_lr, "final learning rate, as a fraction of lr", between(0, 1));
    keys("warmup", warmup, "steps from 0 to lr", at_least(0));
    keys("schedule", schedule, "after the warm-up; wsd: constant, then a linear cooldown");
    keys("cooldown", cooldown, "wsd: the last fraction of all steps", between(0, 1));
    keys("beta1", beta1, "AdamW's decay of the first moment", between(0, 1));
    keys("beta2", beta2, "AdamW's decay of the second moment", between(0, 1));
    keys("eps", eps, "AdamW's epsilon", above(0));
    keys("decay", decay, "decoupled weight decay; none on weights of one dim", at_least(0));
    keys("clip", clip, "largest global gradient norm; 0: no clipping", at_least(0));
    keys("on_bad_step", on_bad_step,
         "reaction to a spike or to a loss or gradients that are not finite; skip: no update in this step; rollback: load the "
         "latest checkpoint and skip all steps since then; stop: end the run");
    keys("spike_sigmas", spike_sigmas,
         "standard deviations above its running mean at which a loss or gradient norm is a spike; 0 disables", at_least(0));
    keys("leave_out", leave_out, "steps whose batches are skipped, without an update");
    keys("profile", profile, "steps whose work is traced op by op, on CPUs, into trace-FIRST-LAST.json of the run directory");
    keys("rounding", rounding, "rounding of the f32 masters to bf16 weights; stochastic: up or down, without bias", identity());
    keys("eval_every", eval_every, "steps between evaluations, also at the end; 0: when RUN/control asks", at_least(0));
    keys("eval_sequences", eval_sequences, "validation sequences of one evaluation; 0: all", at_least(0));
    keys("eval_overlap", eval_overlap,
         "fraction of a validation sequence that repeats the previous one, as context for its predictions", between(0, 1));
    keys("eval_choices", eval_choices,
         "files of multiple-choice questions for each evaluation, in the format of `trireme eval --choices`", paths());
    keys("hang_after", hang_after,
         "abort after this many seconds without progress (at least 3x the slowest recent step), naming the stuck rank; time "
         "without a "
         "core does not count, and a rank that no other waits for causes a warning only; 0 disables; -1: 5, on GPUs 120, since "
         "NCCL tries a broken link again for 30 s",
         at_least(kAutomatic));
    keys("compare_every", compare_every,
         "steps between comparisons of the replicas' state, which detect silent hardware faults; 0 disables", at_least(0));
    keys("log_every", log_every, "steps between lines in log.txt", at_least(1));
    keys("straggler_ratio", straggler_ratio,
         "time of a rank's work relative to the median of its pipeline stage, on CPUs, above which it is named as slow; 0 disables",
         at_least(0));
    keys("on_straggler", on_straggler,
         "reaction to a rank that stays slow; stop: save, and end with exit code 76 and its host in exit.json");
    keys("check_start", check_start,
         "check the machines for a few seconds before the first step, as `trireme doctor --fabric` does; a host that is not fit "
         "ends the start with 76 and is named in exit.json");
    keys(
        "price", price,
        "price of the machine, such as 2.5 EUR/gpu-hour; also /rank-hour (a process) and /node-hour (a machine). Charged from each "
        "process's start to its last step; empty: no cost is reported");
    keys("grid_gco2_per_kwh", grid_gco2_per_kwh, "grams of CO2 that the grid emits for a kWh; 0: none are reported", at_least(0));
  }

  // Reports conflicts between keys, as (key, message) each.
  void check(auto&& report) const {
    if (name.empty() || name == "." || name == ".." || name.find_first_of("/\n") != std::string::npos || name.size() > 200)
      report("name", "must be the name of a directory, without '/' and of at most 200 bytes");
    if (runs.empty()) report("runs", "must name a directory");
    if (straggler_ratio > 0 && straggler_ratio <= 1) report("straggler_ratio", "must be above 1, or 0");
    if (beta1 >= 1) report("beta1", "must be below 1");
    if (beta2 >= 1) report("beta2", "must be below 1");
    if (eval_overlap >= 1) report("eval_overlap", "must be below 1");
    if (!price.empty() && !parse_price(price)) report("price", std::string("must be ") + kPriceForm);
  }
};

// Purpose of reading a config. `plan` (also for bench and lists) needs no data. `mesh` also leaves out
// checks that depend on the number of ranks. `train` needs data; `start` also checks that files exist.
enum class Purpose { plan, mesh, train, start };

struct RunConfig {
  KernelsConfig kernels;
  ParallelConfig parallel;
  ModelConfig model;
  DataConfig data;
  CheckpointConfig checkpoint;
  TrainConfig train;
  ReportConfig report;
  std::vector<std::string> notes;  // one line for each value that resolve() changed; not part of the config

  // Walks the sections, first in the order of the rooms: section("kernels", kernels), ...
  void visit(auto& section) {
    section("kernels", kernels);
    section("parallel", parallel);
    section("model", model);
    section("data", data);
    section("checkpoint", checkpoint);
    section("train", train);
    section("report", report);
  }

  // Fills in values that follow from other keys. parallel.dp and train.microbatch may stay 0
  // (automatic): they follow from the number of ranks.
  void resolve() {
    model.resolve();
    use_device(kernels.device);
    const int64_t asked = std::exchange(train.warmup, train.warmup > train.steps ? train.steps / 10 : train.warmup);
    if (asked != train.warmup)
      notes.push_back("train.warmup: " + std::to_string(asked) + " -> " + std::to_string(train.warmup) +
                      ": longer than train.steps = " + std::to_string(train.steps) + ", so a tenth of it is taken");
  }

  // Adapts sizes in memory and train.hang_after to the device.
  void use_device(DeviceChoice device) {
    kernels.device = device;
    model.vocab_multiple = device == DeviceChoice::cuda ? 64 : 1;
    model.large_chunks = device == DeviceChoice::cuda;
    if (train.hang_after < 0 && device != DeviceChoice::automatic) train.hang_after = device == DeviceChoice::cuda ? 120 : 5;
  }

  // Pipeline stages that recompute; these are the first.
  int64_t recomputing_stages() const {
    if (train.recompute == Recompute::none) return 0;
    return train.recompute_stages > 0 ? train.recompute_stages : parallel.pp;
  }

  // Returns the sequences of one forward pass of a replica.
  int64_t microbatch_rows(int64_t replicas) const {
    return train.microbatch > 0 ? train.microbatch : std::max<int64_t>(train.batch / replicas, 1);
  }

  // Reports conflicts with this number of replicas.
  void check_replicas(int64_t replicas, auto&& report) const {
    const int64_t rows = microbatch_rows(replicas), of_replica = train.batch / replicas;
    const auto by = [](const char* key, int64_t value) { return std::string(key) + " = " + std::to_string(value); };
    if (train.batch % replicas != 0) return report("train.batch", "must be a multiple of " + by("parallel.dp", replicas));
    if (of_replica % rows != 0) return report("train.microbatch", "must divide " + by("train.batch / parallel.dp", of_replica));
    if (parallel.stage_schedule() == Schedule::interleaved && of_replica / rows % parallel.pp != 0)
      report("parallel.schedule", "interleaved needs microbatches (train.batch / parallel.dp / train.microbatch = " +
                                      std::to_string(of_replica / rows) + ") in groups of " + by("parallel.pp", parallel.pp));
    if (parallel.sequence && rows * model.context % parallel.tp != 0 && model.heads % parallel.tp == 0)
      report("parallel.sequence", "splits the " + std::to_string(rows * model.context) +
                                      " tokens of a microbatch: must be a multiple of " + by("parallel.tp", parallel.tp) +
                                      ", or false");
    if (parallel.exact() && rows * model.context % parallel.shards() != 0)
      report("parallel.numerics", "invariant sums the " + std::to_string(rows * model.context) +
                                      " tokens of a microbatch in parts: must be a multiple of " +
                                      std::to_string(parallel.shards()));
  }

  // Reports layers that cannot be dealt to the pieces of the pipeline.
  void check_layers(auto&& report) const {
    const int64_t pieces = parallel.pp * parallel.stage_chunks();
    const std::string have = "model.layers = " + std::to_string(model.layers);
    const std::vector<double>& dealt = parallel.layers;
    if (dealt.empty()) {
      if (2 * model.layers < pieces)
        report("parallel.pp",
               (pieces > parallel.pp ? "times parallel.chunks = " + std::to_string(parallel.stage_chunks()) + " must" : "must") +
                   std::string(" not exceed twice ") + have + ": a piece has half a layer at least");
      return;
    }
    if (std::ssize(dealt) != pieces)
      return report("parallel.layers", "has " + std::to_string(dealt.size()) + " numbers, but the pipeline has " +
                                           std::to_string(pieces) + (pieces == 1 ? " piece" : " pieces") + "; or set it to []");
    double sum = 0;
    for (size_t i = 0; i < dealt.size(); ++i) {
      sum += dealt[i];
      if (2 * dealt[i] != std::floor(2 * dealt[i])) return report("parallel.layers", "must be whole layers or halves, such as 8.5");
      if (dealt[i] == 0 && i > 0 && i + 1 < dealt.size())
        return report("parallel.layers",
                      "has a 0: only the first piece, with the embedding, and the last, with the head, need none");
    }
    if (sum != static_cast<double>(model.layers)) report("parallel.layers", text("adds up to ", sum, ", but ", have));
  }

  // The kernels of a run: with invariant numerics those whose sums do not depend on the number of threads, which the mesh decides.
  KernelsConfig kernels_of_run() const {
    KernelsConfig of_run = kernels;
    if (parallel.exact()) of_run.products = ProductKernels::ours;
    return of_run;
  }

  // Reports conflicts between the model and the mesh.
  void check_mesh(auto&& report) const {
    const int64_t shards = parallel.shards();
    const std::string key = shards > parallel.tp ? "parallel.max_tp" : "parallel.tp";
    const auto by = [](const char* name, int64_t value) { return std::string(name) + " = " + std::to_string(value); };
    if (model.heads % shards != 0)
      report(key, "must divide " + by("model.heads", model.heads));
    else if (model.kv_heads % shards != 0 && shards % model.kv_heads != 0)
      report(key, "must divide " + by("model.kv_heads", model.kv_heads) + " or be a multiple of it");
    if (model.ffn % shards != 0) report(key, "must divide " + by("model.ffn", model.ffn));
    if (model.vocab < shards) report(key, "must not exceed " + by("model.vocab", model.vocab));
    check_layers(report);
    if (train.recompute_stages > 0 && train.recompute == Recompute::none)
      report("train.recompute_stages", "needs train.recompute = selective or full");
    if (parallel.unit_size > 0 && parallel.zero < 2) report("parallel.unit_size", "needs parallel.zero = 2 or 3");
    if (train.recompute_stages > parallel.pp) report("train.recompute_stages", "must not exceed " + by("parallel.pp", parallel.pp));
    if (parallel.exact() && train.microbatch == 0)
      report("train.microbatch",
             "must be set with parallel.numerics = invariant: the rows of a pass must be the same on every mesh");
  }

  // 8-bit products need multiples of 16: the dims of a shard's weights, and the rows of a pass.
  void check_fp8(int64_t replicas, auto&& report) const {
    if (kernels.matmul != MatmulDtype::fp8) return;
    const int64_t shards = parallel.shards(), rows = microbatch_rows(replicas) * model.context;
    const ModelConfig shard = shard_config(model, shards);
    const auto in_16 = [&](const std::string& key, const std::string& what, int64_t size) {
      if (size % 16 != 0)
        report(key, "with kernels.matmul = fp8 " + what + " (" + std::to_string(size) +
                        ") must be a multiple of 16; or set that to auto");
    };
    const std::string each = shards > 1 ? " of a shard" : "";
    in_16("model.width", "the width", model.width);
    in_16("model.heads", "heads times head_size" + each, shard.q_width());
    in_16("model.kv_heads", "queries, keys and values" + each, shard.q_width() + 2 * shard.kv_width());
    in_16("model.ffn", "the hidden width" + each, model.ffn / shards);
    in_16("model.context", "the tokens of a microbatch", rows);
    if (2 * kernels.bf16_layers >= model.layers)
      report("kernels.bf16_layers", "leaves none of the " + std::to_string(model.layers) + " layers to kernels.matmul = fp8");
  }

  // Calls report("train.beta1", "must be below 1") for each problem, after resolve().
  void check(Purpose purpose, auto&& report) const {
    kernels.check([&](const std::string& key, const std::string& problem) { report("kernels." + key, problem); });
    model.check([&](const std::string& key, const std::string& problem) { report("model." + key, problem); });
    if (purpose != Purpose::mesh)
      parallel.check([&](const std::string& key, const std::string& problem) { report("parallel." + key, problem); });
    train.check([&](const std::string& key, const std::string& problem) { report("train." + key, problem); });
    if (purpose != Purpose::mesh) check_mesh(report), check_copies(parallel, model, {train.steps, train.eval_every}, report);
    // The number of a replica's microbatches is known only with parallel.dp.
    if (purpose != Purpose::mesh && (parallel.dp > 0 || parallel.stage_schedule() != Schedule::interleaved))
      check_replicas(std::max<int64_t>(parallel.dp, 1), report);
    if (static_cast<double>(train.steps) * static_cast<double>(train.batch) * static_cast<double>(model.context) > 9e18)
      report("train.steps", "times train.batch times model.context is more tokens than 63 bits count");
    if (purpose != Purpose::mesh) check_fp8(std::max<int64_t>(parallel.dp, 1), report);
    if (train.rounding == Rounding::stochastic && kernels.dtype == StepDtype::f32)
      report("train.rounding",
             "must be nearest with kernels.dtype = f32, whose weights are the masters; or set kernels.dtype = bf16");
    if (train.offload != Offload::none && kernels.device == DeviceChoice::cpu)
      report("train.offload", "must be none with kernels.device = cpu, whose memory is the host's");
    if (parallel.two_level && kernels.device == DeviceChoice::cuda)
      report("parallel.two_level", "must be false with kernels.device = cuda: NCCL finds the levels of its network itself");
    if (purpose >= Purpose::train && !data.exclude.empty() && !model.document_mask)
      report("data.exclude", "needs model.document_mask = true: without it the documents after an excluded one would still see it");
    if (purpose >= Purpose::train && data.train.empty())
      report("data.train", "names no token shards; make some with 'trireme data build'");
    try {
      if (!data.weights.empty()) MixtureSchedule{data.weights};
    } catch (const ConfigError& e) {
      report("data.weights", e.what());
    }
    if (!train.eval_choices.empty() && data.tokenizer.empty())
      report("train.eval_choices", "needs data.tokenizer, which turns questions into tokens");
    if (purpose >= Purpose::train && !data.weights.empty() && data.weights.size() != data.train.size())
      report("data.weights", "must have one number per entry of data.train: " + std::to_string(data.train.size()));
  }
};

// Reads the file, applies the overrides ("section.key=value") in order (the last of a key wins) and
// resolves the config. A list in an override is written a,b or [a, b].
// ConfigError has one line per problem of file and overrides: "configs/x.yaml:12: model.heads = 7: ..."
// or "--set model.heads=7: ...".
RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides, Purpose purpose = Purpose::train);

// Parses a text that to_yaml wrote; messages show `name` for the file. ConfigError as read_config.
RunConfig parse_config(const std::string& name, const std::string& yaml, const std::vector<std::string>& overrides = {},
                       Purpose purpose = Purpose::plan);

// As parse_config, for a checkpoint's config: keys that its version did not have get the value that
// describes what that version did.
RunConfig parse_saved_config(const std::string& name, const std::string& yaml, const std::vector<std::string>& overrides = {},
                             Purpose purpose = Purpose::plan);

// Writes every key; reading the text back gives the same bits.
std::string to_yaml(const RunConfig& config);

// Lists every key with its type, limits, default and meaning, section by section.
std::string config_help();

// Lists each key that differs from a to b, as in "model.layers: 6 -> 12".
std::vector<std::string> differences(const RunConfig& a, const RunConfig& b);

}  // namespace trireme
