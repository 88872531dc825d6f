#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "checkpoint/checkpoints.h"
#include "data/tokenizer.h"
#include "kernels/cuda_facts.h"
#include "parallel/agree.h"
#include "parallel/mesh.h"
#include "train/evaluate.h"
#include "train/kernel_choices.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/replace_file.h"
#include "train/resume.h"
#include "train/saves.h"
#include "train/signals.h"
#include "train/watchdog.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{2000};  // in which an error that rank 0 met reaches the others
constexpr int kMostSkipped = 10;                      // steps in a row whose gradients are not finite, before the run gives up

// What exit.json tells, kept outside of all that may fail.
struct Where {
  std::string directory;
  bool owned = false;  // the lease is ours: another process's run is not written into
  int64_t step = -1;   // finished steps; -1: none yet known
};

// Everything a training loop talks to, next to the Run itself.
struct Session {
  const RunConfig& config;
  Run& run;
  Loader& loader;
  const std::optional<Corpus>& validation;
  const Checkpoints& checkpoints;
  Saves& saves;
  Journal& journal;
  Watchdog& watchdog;
  std::optional<RunLog>& log;  // rank 0's
  double flops;                // of the model, a step, on average over the ranks
  double peak;                 // FLOP/s of products, measured
  int skipped = 0;             // steps in a row without an update
};

void log_step(Session& s, int64_t step, const StepResult& result, double seconds) {
  const int64_t tokens = s.config.train.batch * s.config.model.context;
  if (!s.log) return;
  s.log->step({.step = step,
               .loss = result.loss,
               .grad_norm = result.grad_norm,
               .lr = result.lr,
               .tokens = step * tokens,
               .step_ms = seconds * 1e3,
               .tokens_per_second = static_cast<double>(tokens) / seconds,
               .mfu = s.flops / seconds / s.peak});
}

// AdamW leaves the weights alone when the gradient norm is not finite; here the run says so, and gives up when it does not pass.
void watch_numerics(Session& s, int64_t step, const StepResult& result) {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) {
    s.skipped = 0;
    return;
  }
  if (s.log)
    s.log->note(
        std::string(text("step ", step, ": loss ", result.loss, ", gradient norm ", result.grad_norm, ": the update was skipped")));
  if (++s.skipped < kMostSkipped) return;
  s.saves.end();
  throw NumericsError(text("the gradients of ", kMostSkipped, " steps in a row, the last of them step ", step,
                           ", are not finite; the weights are those of step ", step - kMostSkipped, ". A lower train.lr, a longer ",
                           "train.warmup or train.clip may help"));
}

void evaluate_now(Session& s, int64_t step) {
  if (!s.validation) return;
  s.journal.doing("evaluating");
  const Evaluation e = evaluate(s.run, *s.validation, s.config.train.eval_sequences);
  if (s.log)
    s.log->eval(
        {.step = step, .val_loss = e.loss, .bits_per_byte = e.bits_per_byte, .val_tokens = e.targets, .seconds = e.seconds});
  s.journal.doing("training");
}

// Steps handed over, of which on a GPU one is always on its way: the host reads the loss of a step when the next has begun.
class Steps {
 public:
  Steps(Session& session, int64_t& ended) : session_(session), begun_(ended), ended_(ended) {}

  int64_t begun() const { return begun_; }
  void begin() {
    if (begun_ == ended_) since_ = Clock::now();
    session_.journal.begin(begun_ + 1);
    session_.journal.doing("reading");
    const Batch batch = session_.loader.next();
    session_.journal.doing("training");
    begin_step(session_.run, batch, begun_++);
    if (session_.run.device.place() != Place::cuda || begun_ - ended_ > 1) end();
  }
  void end_all() {
    while (ended_ < begun_) end();
  }

 private:
  void end() {
    const StepResult result = end_step(session_.run, ended_);
    ++ended_;
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
    session_.watchdog.took(seconds);
    session_.journal.doing("logging");
    log_step(session_, ended_, result, seconds);
    session_.journal.doing("training");
    watch_numerics(session_, ended_, result);
  }

  Session& session_;
  int64_t begun_;
  int64_t& ended_;
  Clock::time_point since_{};  // the end of the step before, or the beginning of the first
};

// Step, log, evaluate, save. Lines are written before the checkpoint that covers them, so that a resume finds them.
ExitCode loop(Session& s, int64_t& step) {
  const TrainConfig& t = s.config.train;
  const auto note = [&](const std::string& line) {
    if (s.log) s.log->note(line);
  };
  if (step >= t.steps)
    note("already finished: train.steps = " + std::to_string(t.steps) +
         "; a larger train.steps goes on, another train.name begins anew");
  const int64_t restored = s.checkpoints.restored_from_disk() ? step : 0;  // of which nothing need be saved
  std::vector<int64_t> agreed;  // of all ranks: a signal, if any, and whether one is still at work on a save
  Steps steps(s, step);
  while (steps.begun() < t.steps && (agreed = largest(s.run.mesh.all(), {stop_signal(), s.saves.busy()})).front() == 0) {
    if (agreed.back() == 0) s.saves.advance();
    steps.begin();
    const bool last = steps.begun() == t.steps, save = last || s.checkpoints.due(steps.begun());
    const bool evaluates = last || (t.eval_every > 0 && steps.begun() % t.eval_every == 0);
    const bool to_memory = !save && s.checkpoints.due_in_memory(steps.begun()) && !s.checkpoints.saving();
    if (save || to_memory || evaluates) steps.end_all();
    if (evaluates) evaluate_now(s, step);
    if (save && !last) s.saves.begin(step);
    if (to_memory) s.saves.begin(step, Tier::memory);
    s.run.device.freeze();  // from the second step on, nothing is allocated
  }
  steps.end_all();
  s.watchdog.last_step_done();
  s.saves.end();
  if (step > std::max(restored, s.saves.saved())) s.saves.save_at_last(step);
  if (step < t.steps) {
    const std::string after = step > 0 ? "after step " + std::to_string(step) + ", which is saved" : "before the first step";
    note(std::string("stopped by signal (") + strsignal(static_cast<int>(agreed.front())) + ") " + after +
         "; the same command continues");
    return ExitCode::stopped;
  }
  if (s.log) s.log->finish();
  return ExitCode::done;
}

void check_fit(const RunConfig& config, const Plan& plan, const Device& device, int ranks_on_node) {
  const bool cuda = device.place() == Place::cuda;  // a GPU that is too small refuses the memory itself
  const int64_t needed = ((cuda ? plan.pinned : plan.sizes.total()) + plan.copy + plan.in_memory) * ranks_on_node;
  if (needed <= device.cpu().memory_bytes) return;
  if (cuda)
    throw ConfigError(text("train.offload = optimizer needs ", human_bytes(static_cast<double>(needed)),
                           " of the host's memory but the machine has ",
                           human_bytes(static_cast<double>(device.cpu().memory_bytes)), ": set train.offload to none, or raise ",
                           "parallel.zero (now ", config.parallel.zero, ") on more nodes"));
  throw ConfigError(text("this run needs ", human_bytes(static_cast<double>(needed)), " but the machine has ",
                         human_bytes(static_cast<double>(device.cpu().memory_bytes)), ": lower train.microbatch (now ",
                         config.microbatch_rows(plan.replicas), ")", plan.copy > 0 ? ", set checkpoint.async to false" : "",
                         ", or see 'trireme plan'"));
}

// With the vocabulary and the tokenizer that the config says.
Corpus open_corpus(const RunConfig& config, const std::vector<std::string>& paths, const char* key, bool held_out) {
  const int64_t T = config.model.context;
  Corpus corpus(paths, T, held_out, held_out ? static_cast<int64_t>(config.train.eval_overlap * static_cast<double>(T)) : 0);
  if (corpus.vocab() > config.model.vocab)
    throw ConfigError(
        text(key, ": its tokens come from a vocabulary of ", corpus.vocab(), ", but model.vocab = ", config.model.vocab));
  if (!config.data.tokenizer.empty()) corpus.expect_tokenizer(*open_tokenizer(config.data.tokenizer));
  return corpus;
}

// Weights, moments and step from a checkpoint, or fresh ones. Returns the finished steps.
int64_t restore(const RunConfig& config, Run& run, Checkpoints& checkpoints, const ResumeChoice& resume) {
  std::optional<HostState> host(std::in_place, run.device, state_shards(run, Shards::all), Copies::where_needed);
  CheckpointState state = state_of(config, host->shards(), 0);
  std::optional<int64_t> step;
  if (resume.from == "auto")
    step = checkpoints.restore(state);
  else if (resume.from != "never")
    step = checkpoints.restore_from(resume.from, state);
  const auto tell = [&](const std::string& line) {
    if (run.mesh.first()) complain(line);
  };
  for (const std::string& warning : checkpoints.take_warnings()) tell(warning);
  Stream& compute = run.device.compute();
  if (!step) {
    run.optimizer.initialise(compute, config.model.init_std, config.model.layers);
    return 0;
  }
  for (const std::string& line : compare_for_resume(config, state.config, resume.allow_changes)) tell(line);
  host->store();
  host.reset();
  HostState there(run.device, state_shards(run, Shards::once), Copies::where_needed);
  there.fetch();
  there.wait();
  checkpoints.confirm(there.shards());
  run.optimizer.refresh(compute, *step);
  return *step;
}

void announce(const RunConfig& config, const Mesh& mesh, const Plan& plan, const Device& device, const Corpus& corpus, double peak,
              int64_t step, RunLog& log) {
  const std::string parameters = human_count(static_cast<double>(plan.parameters));
  const std::string dtype =
      std::string(name_of(config.kernels.dtype)) + (config.kernels.matmul == MatmulDtype::fp8 ? " with products in fp8" : "");
  const std::string place = device.place() == Place::cuda
                                ? cuda_facts().device + ", " + dtype
                                : device.cpu().name + ", " + std::to_string(device.threads()) + " threads, " + dtype +
                                      ", bf16 products: " + device.cpu().bf16_path();
  const auto bytes = [](int64_t count) { return human_bytes(static_cast<double>(count)); };
  const std::string memory =
      bytes(plan.device_bytes()) + (plan.pinned > 0 ? ", " + bytes(plan.pinned) + " pinned on the host" : "");
  const std::string data =
      human_count(static_cast<double>(corpus.tokens())) + " tokens in " + std::to_string(corpus.samples()) + " samples";
  log.facts(
      {{"model", std::string(name_of(config.model.family)) + ", " + parameters + " parameters"},
       {"device", place},
       {"mesh", text(mesh.all().size(), " ranks: dp ", mesh.dp().size(), ", pp ", mesh.pp().size(), ", tp ", mesh.tp().size())},
       {"memory", memory},
       {"data", data},
       {"tokens a step", std::to_string(plan.tokens)},
       {"MFU", "(6 FLOPs per parameter in products and token + causal attention) / time / " + human_si(peak) +
                   "FLOP/s, the product rate measured at the start"}});
  log.note(config.train.name + ": " + parameters + " parameters, " + memory + ", " + data);
  log.note(place + ", products at " + human_si(peak) + "FLOP/s");
  if (step > 0) log.note("resumed after step " + std::to_string(step));
}

// The system's, of which the journal hears when something was read or written.
Io noted_io(Journal& journal) {
  Io io;
  io.pread = [&journal, real = io.pread](int fd, void* bytes, size_t count, off_t offset) {
    const ssize_t n = real(fd, bytes, count, offset);
    return journal.disk_moved(), n;
  };
  io.pwrite = [&journal, real = io.pwrite](int fd, const void* bytes, size_t count, off_t offset) {
    const ssize_t n = real(fd, bytes, count, offset);
    return journal.disk_moved(), n;
  };
  io.fsync = [&journal, real = io.fsync](int fd) {
    const int result = real(fd);
    return journal.disk_moved(), result;
  };
  return io;
}

Watchdog::Orders watch_orders(const RunConfig& config, const World& world, const Where& where) {
  return {.patience = config.train.hang_after,
          .one_node = world.local_size() == world.size(),
          .warn = [](const std::string& line) { complain("warning: steps wait for a disk: " + line); },
          .tell =
              [&world, &where](const Verdict& verdict, const std::string& stack) {
                const std::string line = "hang: " + verdict.line + (stack.empty() ? "" : "; it is in " + stack);
                complain(line);
                if (where.owned)
                  write_exit(where.directory, ExitCode::hang, "hang", static_cast<int>(verdict.rank), where.step, line);
              }};
}

// Told of what ends the run while all of it still stands: on several ranks, memory that the communication lane may be working on
// must not go before the end is told and the other ranks are ended.
using Failed = std::function<void(const std::exception&)>;

// The table of contents: who am I, what do I hold, where is the data, what was saved, and on with it.
ExitCode run_to_end(const RunConfig& config, World& world, const ResumeChoice& resume, Where& where, const Failed& failed) {
  watch_signals();
  Device device = open_device(config.kernels, world.core_sharers(), world.local_rank());
  Journal journal(world.rank());
  journal.connect(world);
  Mesh mesh(world, config.parallel);
  mesh.keep(journal);
  Watchdog watchdog(journal, world.rank(), watch_orders(config, world, where));
  if (config.checkpoint.memory_every > 0 && world.local_size() != world.size())
    throw ConfigError("checkpoint.memory_every: a node's memory is for runs of one node so far; set it to 0");
  const Plan plan = make_plan(config, mesh);
  check_fit(config, plan, device, world.local_size());
  if (device.place() == Place::cuda && mesh.all().size() > 1) mesh.connect_gpus(device);
  CheckpointConfig checkpointing = config.checkpoint;
  if (checkpointing.writers == 0) checkpointing.writers = device.place() == Place::cuda ? 4 : 1;
  Checkpoints checkpoints(checkpointing, where.directory, resume.from == "never" ? Resume::never : Resume::automatic,
                          noted_io(journal), mesh.all());
  where.owned = mesh.first();
  const Corpus corpus = open_corpus(config, config.data.train, "data.train", false);
  std::optional<Corpus> validation;
  if (!config.data.validation.empty()) validation.emplace(open_corpus(config, config.data.validation, "data.validation", true));
  const ChosenKernels kernels = choose_kernels(config, plan, mesh, device, where.directory);
  const double peak = 1e9 * product_rate(device, dtype_of(config.kernels.dtype), plan.products, 0.005);
  Run run(config, mesh, device, plan.sizes);
  Loader loader(corpus, {.context = config.model.context,
                         .batch = config.train.batch,
                         .microbatch = config.microbatch_rows(mesh.replicas()),
                         .replica = static_cast<int>(mesh.replica()),
                         .replicas = static_cast<int>(mesh.replicas()),
                         .seed = static_cast<uint64_t>(config.train.seed),
                         .document_mask = config.model.document_mask,
                         .restart_positions = config.model.restart_positions});

  std::optional<RunLog> log;
  try {
    int64_t& step = where.step = restore(config, run, checkpoints, resume);
    where.owned = true;  // rank 0 holds the lease for all
    loader.seek(step);
    if (mesh.first()) {
      if (!replace_file(where.directory + "/config.yaml", to_yaml(config)))
        throw Error(text("cannot write ", where.directory, "/config.yaml"));
      keep_choices(kernels, where.directory);
      log.emplace(where.directory, config.train.name, config.train.steps, step > 0 ? step : -1, config.train.log_every);
      announce(config, mesh, plan, device, corpus, peak, step, *log);
      for (const std::string& note : kernels.notes) log->note(note);
    }
    Saves saves(config, run, checkpoints, log, journal);
    Session session{.config = config,
                    .run = run,
                    .loader = loader,
                    .validation = validation,
                    .checkpoints = checkpoints,
                    .saves = saves,
                    .journal = journal,
                    .watchdog = watchdog,
                    .log = log,
                    .flops = sum(mesh.all(), {plan.model_flops()}).front() / static_cast<double>(mesh.all().size()),
                    .peak = peak};
    journal.doing("training");
    const ExitCode code = loop(session, step);
    journal.doing("ending");
    run.buckets.finish();
    checkpoints.finish();
    return code;
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

// Tells, ends all ranks. The first to tell ends all: what every rank meets, rank 0 tells.
[[noreturn]] void end_all_ranks(const World& world, const RunConfig& config, const std::exception& error, ExitCode code) {
  if (world.rank() > 0) std::this_thread::sleep_for(kPatience);
  complain(std::string(text("[", Mesh(world.rank(), world.size(), config.parallel).told(), "] ", error.what())));
  world.abort(code);
}

}  // namespace

ExitCode train(const RunConfig& config, World& world, const ResumeChoice& resume) {
  Where where{.directory = config.train.runs + "/" + config.train.name};
  const auto leave = [&](ExitCode code, const char* cause, const std::string& message) {
    if (where.owned) write_exit(where.directory, code, cause, world.rank(), where.step, message);
  };
  bool told = false;
  const auto failed = [&](const std::exception& error) {
    if (std::exchange(told, true)) return;
    const auto* known = dynamic_cast<const Error*>(&error);
    const ExitCode code = known != nullptr ? known->code() : ExitCode::internal;
    leave(code, "error", error.what());
    if (world.size() > 1) end_all_ranks(world, config, error, code);
  };
  try {
    const ExitCode code = run_to_end(config, world, resume, where, failed);
    if (world.rank() == 0) leave(code, code == ExitCode::done ? "done" : "signal", "");
    return code;
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

}  // namespace trireme
