#include "train/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "base/replace_file.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/cuda_facts.h"
#include "parallel/host_collectives.h"
#include "parallel/mesh.h"
#include "parallel/nodes.h"
#include "train/health/signals.h"
#include "train/run/data_record.h"
#include "train/run/kernel_choices.h"
#include "train/run/launch_agreement.h"
#include "train/run/loop.h"
#include "train/run/sources.h"
#include "train/step/plan.h"

namespace trireme {
namespace {

// What exit.json tells, kept outside of all that may fail.
struct RunStatus {
  std::string directory;
  bool owned = false;  // the lease is ours: another process's run is not written into
  int64_t step = -1;   // finished steps; -1: none yet known
};

// Bytes that this machine's ranks keep in memory for checkpoint.memory_every: their own, and those of the node before.
int64_t kept_in_memory(const Plan& plan, const Nodes& nodes, const Comm& all) {
  std::vector<double> by_node(static_cast<size_t>(nodes.count()));
  by_node[static_cast<size_t>(nodes.here())] += static_cast<double>(plan.in_memory);
  if (nodes.count() > 1) by_node[static_cast<size_t>((nodes.here() + 1) % nodes.count())] += static_cast<double>(plan.in_memory);
  by_node = sum(all, by_node);
  const double here = by_node[static_cast<size_t>(nodes.here())];
  return static_cast<int64_t>(nodes.pretended() ? std::accumulate(by_node.begin(), by_node.end(), 0.0) : here);
}

void check_fit(const RunConfig& config, const Plan& plan, const Device& device, int ranks_on_node, int64_t in_memory) {
  const bool cuda = device.place() == Place::cuda;  // a GPU that is too small refuses the memory itself
  const int64_t needed = ((cuda ? plan.pinned : plan.sizes.total()) + plan.copy) * ranks_on_node + in_memory;
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

void announce(const RunConfig& config, const Mesh& mesh, const Plan& plan, const Device& device, const Mixture& mixture,
              double peak, int64_t step, RunLog& log) {
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
      human_count(static_cast<double>(mixture.tokens())) + " tokens in " + std::to_string(mixture.samples()) + " samples";
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
  for (const std::string& line : describe_sources(config, mixture)) log.note(line);
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
  io.fallocate = [&journal, real = io.fallocate](int fd, int mode, off_t offset, off_t count) {
    const int result = real(fd, mode, offset, count);
    return journal.disk_moved(), result;
  };
  io.fsync = [&journal, real = io.fsync](int fd) {
    const int result = real(fd);
    return journal.disk_moved(), result;
  };
  return io;
}

// Of several nodes: where they tell each other of a hang. All ranks call it.
std::optional<HangBoard> board_of(const Journal& journal, const Mesh& mesh, const std::string& directory) {
  std::ostringstream told;
  if (std::vector<std::string> leaders = gather(mesh.all(), std::to_string(journal.leader())); mesh.first()) {
    const auto number = [](const std::string& digits) { return std::stoll(digits); };
    std::ranges::sort(leaders, {}, number);
    leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
    told << directory << "/hang-" << std::random_device()() << '\n';
    for (const std::string& leader : leaders) told << leader << ' ';
  }
  std::istringstream in(broadcast(mesh.all(), told.str()));
  std::string path;
  std::getline(in, path);
  const std::vector<int64_t> leaders{std::istream_iterator<int64_t>(in), {}};
  if (leaders.size() <= 1) return std::nullopt;
  const auto node = std::find(leaders.begin(), leaders.end(), journal.leader()) - leaders.begin();
  return std::optional<HangBoard>(std::in_place, path, node, static_cast<int64_t>(leaders.size()));
}

Watchdog::Orders watch_orders(const RunConfig& config, const RunStatus& status, const std::optional<HangBoard>& board) {
  return {.patience = config.train.hang_after,
          .board = board ? &*board : nullptr,
          .warn = [](const std::string& line) { complain("warning: steps wait for a disk: " + line); },
          .tell =
              [&status](const Verdict& verdict, const std::string& stack) {
                const std::string line = "hang: " + verdict.line + (stack.empty() ? "" : "; it is in " + stack);
                complain(line);
                if (status.owned)
                  write_exit(status.directory, ExitCode::hang, "hang", static_cast<int>(verdict.rank), status.step, line);
              }};
}

// The data of the steps behind `step`, in data.jsonl. Returns what is not as the steps in front of it had it, which resume allows.
std::vector<std::string> record_data(const RunConfig& config, const Mixture& mixture, int64_t replicas, const ResumeChoice& resume,
                                     const std::string& directory, int64_t step) {
  const DataRecord record = data_record(config, mixture, replicas, step);
  const bool own = resume.from == "auto" || resume.from == "never";
  std::vector<std::string> changes;
  if (step > 0) changes = compare_data(own ? directory : run_of(resume.from), step, record, resume.allow_changes);
  keep_record(directory, record);
  if (step > 0) return changes;
  return doubt_tokenizer(config, mixture.source(0));
}

// Told of what ends the run while all of it still stands: on several ranks, memory that the communication lane may be working on
// must not go before the end is told and the other ranks are ended.
using Failed = std::function<void(const std::exception&)>;
using Ready = std::function<void(TrainState&)>;

// The table of contents: who am I, what do I hold, where is the data, what was saved, and on with it.
ExitCode run_to_end(const RunConfig& config, World& world, const ResumeChoice& resume, RunStatus& status, const Failed& failed,
                    const Ready& ready) {
  watch_signals();
  Device device = open_device(config.kernels, world.core_sharers(), world.local_rank());
  Journal journal(world.rank());
  journal.connect(world, config.parallel.two_level ? config.parallel.node_ranks : 0);
  Mesh mesh(world, config.parallel);
  mesh.keep(journal);
  const Nodes nodes(world, config.parallel.two_level ? config.parallel.node_ranks : 0);
  const std::optional<HangBoard> board = board_of(journal, mesh, status.directory);
  Watchdog watchdog(journal, world.rank(), watch_orders(config, status, board));
  const Plan plan = make_plan(config, mesh);
  check_fit(config, plan, device, world.local_size(), kept_in_memory(plan, nodes, mesh.all()));
  mesh.connect(device);
  Checkpoints checkpoints(config.checkpoint, status.directory, resume.from == "never" ? Resume::never : Resume::automatic,
                          noted_io(journal), mesh.all(), nodes);
  status.owned = mesh.first();
  if (status.owned) sweep_hang_boards(status.directory, board ? board->directory() : "");
  const std::unique_ptr<Tokenizer> tokenizer = config.data.tokenizer.empty() ? nullptr : open_tokenizer(config.data.tokenizer);
  std::vector<Corpus> sources = open_sources(config, tokenizer.get(), [&] { journal.disk_moved(); });
  const std::vector<std::string> exclusions = exclude_documents(config, sources);
  const Mixture mixture(sources, config.data.weights.empty() ? std::vector{1.0} : config.data.weights);
  std::optional<Corpus> validation;
  if (!config.data.validation.empty())
    validation.emplace(open_corpus(config, config.data.validation, "data.validation", true, tokenizer.get()));
  std::vector<ChoiceTask> choices;
  if (!config.train.eval_choices.empty()) choices = open_choice_tasks(config.train.eval_choices, *tokenizer, config.model);
  const ChosenKernels kernels = choose_kernels(config, plan, mesh, device, status.directory);
  const double peak = 1e9 * product_rate(device, dtype_of(config.kernels.dtype), plan.products, 0.005);
  TrainState run(config, mesh, device, plan.sizes);
  Loader loader(mixture, {.context = config.model.context,
                          .batch = config.train.batch,
                          .microbatch = config.microbatch_rows(mesh.replicas()),
                          .replica = static_cast<int>(mesh.replica()),
                          .replicas = static_cast<int>(mesh.replicas()),
                          .seed = static_cast<uint64_t>(config.train.seed),
                          .document_mask = config.model.document_mask,
                          .restart_positions = config.model.restart_positions});

  StepStatistics history(config.train.spike_sigmas);
  std::optional<RunLog> log;
  try {
    int64_t& step = status.step = restore(config, run, checkpoints, resume, history, journal);
    status.owned = true;  // rank 0 holds the lease for all
    loader.seek(step);
    if (mesh.first()) {
      const std::vector<std::string> changes = record_data(config, mixture, mesh.replicas(), resume, status.directory, step);
      if (!replace_file(status.directory + "/config.yaml", to_yaml(config)))
        throw Error(text("cannot write ", status.directory, "/config.yaml"));
      keep_choices(kernels, status.directory);
      log.emplace(status.directory, config.train.name, config.train.steps, step > 0 ? step : -1, config.train.log_every);
      announce(config, mesh, plan, device, mixture, peak, step, *log);
      for (const auto* lines : {&kernels.notes, &exclusions, &changes})
        for (const std::string& note : *lines) log->note(note);
      if (!config.model.document_mask && std::ranges::any_of(sources, &Corpus::packed))
        log->note("warning: data.train: the documents are packed in rows, and with model.document_mask = false see one another");
    }
    SaveScheduler saves(config, run, history, checkpoints, log, journal);
    Session session{.config = config,
                    .resume = resume,
                    .run = run,
                    .loader = loader,
                    .validation = validation,
                    .choices = choices,
                    .checkpoints = checkpoints,
                    .saves = saves,
                    .history = history,
                    .journal = journal,
                    .watchdog = watchdog,
                    .log = log,
                    .flops = sum(mesh.all(), {plan.model_flops()}).front() / static_cast<double>(mesh.all().size()),
                    .peak = peak};
    if (ready) ready(run);
    journal.doing("training");
    const ExitCode code = loop(session, step);
    journal.doing("ending");
    run.sync.join();
    watchdog.stop();  // the user's command for the last checkpoint may take its time
    checkpoints.finish();
    for (const std::string& warning : checkpoints.take_warnings())
      if (mesh.first()) complain(warning);
    return code;
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

}  // namespace

ExitCode train(const RunConfig& config, World& world, const ResumeChoice& resume, const Ready& ready) {
  RunStatus status{.directory = config.train.runs + "/" + config.train.name};
  const auto leave = [&](ExitCode code, const char* cause, const std::string& message) {
    if (status.owned) write_exit(status.directory, code, cause, world.rank(), status.step, message);
  };
  bool told = false;
  const auto failed = [&](const std::exception& error) {
    if (std::exchange(told, true)) return;
    const auto left = [&] { leave(code_of(error), "error", error.what()); };
    if (world.size() > 1) end_all_ranks(world, config, error, left);
    left();
  };
  try {
    const ExitCode code = run_to_end(config, world, resume, status, failed, ready);
    if (world.rank() == 0) leave(code, code == ExitCode::done ? "done" : "signal", "");
    return code;
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

}  // namespace trireme
