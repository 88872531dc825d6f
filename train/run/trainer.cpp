#include "train/run/trainer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/build_facts.h"
#include "base/clock.h"
#include "base/number_format.h"
#include "base/replace_file.h"
#include "parallel/host_collectives.h"
#include "train/health/dead_segments.h"
#include "train/health/last_words.h"
#include "train/health/signals.h"
#include "train/run/announcement.h"
#include "train/run/evaluations.h"
#include "train/run/fabric_check.h"
#include "train/run/fresh_run.h"
#include "train/run/kernel_choices.h"
#include "train/run/launch_agreement.h"
#include "train/run/loop.h"
#include "train/run/memory_check.h"
#include "train/run/noted_io.h"
#include "train/run/peak_rate.h"
#include "train/run/placement.h"
#include "train/run/run_data.h"
#include "train/run/run_meter.h"
#include "train/run/stop_notice.h"
#include "train/run/supervise_io.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

constexpr double kLongestSave = 900;  // seconds for which ranks may outlive their launcher while they save
constexpr double kLastStep = 2;       // at least, until they have agreed to stop

// The arguments of train(), and the state that it keeps outside of all that may fail.
struct Order {
  const RunConfig& config;
  World& world;
  const ResumeChoice& resume;
  const std::function<void(TrainState&)>& ready;
  RunProgress& progress;
  // Called with the error that ends the run, while all of the run still exists: on several ranks, memory that the communication
  // lane may use must not go before the error is reported and the other ranks have ended.
  std::function<void(const std::exception&)> failed;
  std::function<void(ExitCode)> ending;  // called when all is saved, before the user's command is waited for
};

// A launcher that asked the ranks to stop has killed what it knows of them (see LauncherShield): they save, if all of them live. A
// rank of another node whose death made the launcher end the run cannot be seen, but no step ends without it.
class SavingWithoutLauncher {
 public:
  SavingWithoutLauncher(World& world, Placement& place) : world_(world) {
    world.when_launcher_is_gone([&journal = place.journal, &watchdog = place.watchdog, asked = Clock::time_point()]() mutable {
      const auto lives = [](const RankReport& r) { return r.state != 'Z' && r.state != 'X'; };
      if (stop_signal() == 0) return false;
      if (asked == Clock::time_point()) asked = Clock::now();
      const double longest = watchdog.steps_are_done() ? kLongestSave : std::max(kLastStep, watchdog.longest_step());
      return seconds_since(asked) < longest && std::ranges::all_of(journal.look(), lives);
    });
  }
  ~SavingWithoutLauncher() { world_.when_launcher_is_gone(nullptr); }
  SavingWithoutLauncher(const SavingWithoutLauncher&) = delete;
  SavingWithoutLauncher& operator=(const SavingWithoutLauncher&) = delete;

 private:
  World& world_;
};

// All that a run has.
struct RunParts {
  const SweptSegments swept;  // of this node
  Placement place;
  RunMeter meter;
  const Plan plan;
  Checkpoints checkpoints;
  RunData data;
  const ChosenKernels kernels;
  PeakRate peak;
  const SavingWithoutLauncher orphan;       // from the check of the machines on, which takes seconds
  const std::vector<std::string> machines;  // what their check says: before the state, since the check takes memory of its own
  TrainState run;
  Loader loader;
  StepStatistics history;
  std::map<std::string, ChainedDigest> records;  // rank 0's: of the data, for checkpoints
  std::optional<RunLog> log;                     // rank 0's

  explicit RunParts(const Order& o)
      : swept(o.world.local_rank() == 0 ? sweep_dead_segments() : SweptSegments{}),
        place(o.config, o.world, o.progress),
        meter(o.config, place),
        plan(plan_that_fits(o)),
        checkpoints(o.config.checkpoint, o.progress.directory, o.resume.from == "never" ? Resume::never : Resume::automatic,
                    noted_io(place.journal), place.mesh.all(), place.nodes),
        data(open_data(o)),
        kernels(choose_kernels(o.config, plan, place.mesh, place.device,
                               {.directory = o.progress.directory, .document = data.tokens_of_document()})),
        peak(find_peak(o.config, plan, place.mesh, place.device, o.progress.directory)),
        orphan(o.world, place),
        machines(check_machines(o)),
        run(o.config, place.mesh, place.device, plan.sizes),
        loader(data.mixture, loader_options(o.config, place.mesh)),
        history(o.config.train.spike_sigmas) {}

 private:
  Plan plan_that_fits(const Order& o) {
    require_shapes(o.config, place.device);
    Plan plan = make_plan(o.config, place.mesh);
    require_memory(o.config, plan, place, o.world);
    require_checkpoint(plan, place.mesh.all());
    place.mesh.connect(place.device);
    return plan;
  }
  RunData open_data(const Order& o) {
    o.progress.owned = place.mesh.first();  // the checkpoints have taken the run's lock
    if (o.progress.owned)
      for (const std::string& problem : sweep_hang_boards(o.progress.directory, place.board ? place.board->directory() : ""))
        complain(problem);
    return {o.config, place.mesh.all(), place.journal};
  }
  std::vector<std::string> check_machines(const Order& o) {
    if (!o.config.train.check_start) return {};
    const Comm& all = place.mesh.all();
    try {
      if (largest(all, stop_signal()) != 0) return {};  // the run is about to stop
      return require_fit_machines({.world = o.world, .all = all, .mesh = place.mesh, .device = place.device, .config = &o.config});
    } catch (const std::exception& error) {
      o.progress.locked = place.mesh.first();  // the checkpoints have the run's lock until they go
      o.failed(error);
      throw;
    }
  }
};

// Watchers of a run beside its steps.
struct RunWatch {
  StopNotice& notice;
  const Scrubber& scrubber;
};

RunSchedule schedule_of(const RunConfig& config, const RunData& data) {
  return {.steps = config.train.steps,
          .eval_every = config.train.eval_every,
          .save_every = config.checkpoint.every,
          .evaluation_in_steps = evaluation_in_steps(config, data.validation, data.choices)};
}

// Rank 0 records and announces what runs.
void open_log(const Order& o, RunParts& p, int64_t step) {
  const std::string& directory = o.progress.directory;
  const RunConfig& config = o.config;
  const std::string& run_id = p.checkpoints.run_id();
  const std::map<std::string, ChainedDigest>& restored = p.checkpoints.restored_records();
  const std::vector<std::string> changes = record_data(config, p.data, o.resume,
                                                       {.directory = directory,
                                                        .step = step,
                                                        .replicas = p.place.mesh.replicas(),
                                                        .run = run_id,
                                                        .restored_run = p.checkpoints.restored_run(),
                                                        .restored = restored,
                                                        .records = p.records});
  if (!replace_file(directory + "/config.yaml", to_yaml(config))) throw unwritable(directory + "/config.yaml");
  keep_choices(p.kernels, directory);
  keep_peak(p.peak, directory);
  RecordStart start(step > 0 ? step : -1, run_id, {});
  const auto metrics = restored.find("metrics");
  if (p.checkpoints.restored_run() == run_id && metrics != restored.end()) start.expected = metrics->second;
  EnergyOrders energy = p.meter.orders(config);
  energy.before = energy_totals_before(directory, energy.run = run_id);
  p.log.emplace(directory, config.train.name, schedule_of(config, p.data), start, config.train.log_every);
  const RunStart start_now{.time = program_start(),
                           .step = step,
                           .ranks = o.world.size(),
                           .run = run_id,
                           .version = build_facts().version + " (" + build_facts().commit.substr(0, 12) + ")",
                           .host = host_name()};
  const RunStarts starts = step < config.train.steps ? note_start(directory, start_now) : RunStarts{};
  p.log->also_to(config.report, {.run = config.train.name,
                                 .version = build_facts().version,
                                 .commit = build_facts().commit,
                                 .total_steps = config.train.steps,
                                 .save_every = config.checkpoint.every,
                                 .ranks = o.world.size(),
                                 .restored = step,
                                 .on_disk = p.checkpoints.restored_from_disk() ? step : 0,
                                 .starts = starts,
                                 .patience = config.train.hang_after});
  p.log->account(std::move(energy));
  announce({.config = config,
            .mesh = p.place.mesh,
            .device = p.place.device,
            .plan = p.plan,
            .mixture = p.data.mixture,
            .peak = p.peak.flops_per_second(),
            .step = step},
           *p.log);
  if (!p.peak.known()) p.log->note(p.peak.describe());
  if (const auto& parallel = config.parallel; parallel.two_level && parallel.node_ranks > o.world.size())
    p.log->note(std::string(text("warning: parallel.node_ranks = ", parallel.node_ranks, " is more than the ", o.world.size(),
                                 " ranks of this start: sums take one level")));
  const auto tell = [&p](const std::vector<std::string>& notes) {
    for (const std::string& note : notes) p.log->note(note);
  };
  tell(p.kernels.notes), tell(p.data.exclusions), tell(changes);
  if (p.swept.files > 0)
    p.log->note("removed " + std::to_string(p.swept.files) + " shared-memory files that dead MPI jobs had left in /dev/shm, " +
                human_bytes(static_cast<double>(p.swept.bytes)));
}

// One rank of a node reads its shards again, and its part of the checkpoints' files.
Scrubber::Orders scrubs_of(const Order& o, RunParts& p) {
  Scrubber::Orders orders{.shard_rate = 1e6 * o.config.data.scrub, .checkpoint_rate = 1e6 * o.config.checkpoint.scrub};
  const Nodes& nodes = p.place.nodes;
  if (nodes.leader(nodes.here()) != p.place.mesh.all().rank()) return orders;
  orders.shards = p.data.shards();
  orders.checkpoints = o.progress.directory + "/checkpoints";
  orders.part = nodes.here(), orders.parts = nodes.count();
  orders.expected = [&p](int64_t step, uint64_t manifest) { return p.checkpoints.expects(step, manifest); };
  orders.damaged = [&p](int64_t step, const std::string& problem) {
    p.checkpoints.doubt(step, problem);
    if (p.log) p.log->note("warning: " + damaged_since(step, problem));
  };
  return orders;
}

void note_scrubs(RunParts& p, const Scrubber& scrubber) {
  if (!p.log || scrubber.damaged() == 0) return;
  p.log->note(std::string(text("read again: ", human_bytes(static_cast<double>(scrubber.shard_bytes())), " of shards, ",
                               human_bytes(static_cast<double>(scrubber.checkpoint_bytes())), " of checkpoints, ",
                               scrubber.damaged(), " damaged")));
}

StepFlops flops_of(const Plan& plan, const Comm& all) {
  const std::vector<double> sums = sum(all, {plan.model_flops(), plan.full_flops(), plan.executed_flops()});
  const auto ranks = static_cast<double>(all.size());
  return {.model = sums[0] / ranks, .full = sums[1] / ranks, .executed = sums[2] / ranks};
}

Session session_of(const Order& o, RunParts& p, SaveScheduler& saves, const RunWatch& watch) {
  const Comm& all = p.place.mesh.all();
  return {.config = o.config,
          .resume = o.resume,
          .run = p.run,
          .loader = p.loader,
          .validation = p.data.validation,
          .choices = p.data.choices,
          .checkpoints = p.checkpoints,
          .saves = saves,
          .history = p.history,
          .journal = p.place.journal,
          .watchdog = p.place.watchdog,
          .notice = watch.notice,
          .scrubber = watch.scrubber,
          .meter = p.meter,
          .log = p.log,
          .flops = flops_of(p.plan, all),
          .peak = p.peak,
          .shares_cores = p.place.shares_cores};
}

void finish(RunParts& p) {
  p.run.sync.join();
  p.place.watchdog.stop();  // the user's command for the last checkpoint may take its time
  p.checkpoints.finish([] { return stop_signal() != 0; });
  for (const std::string& warning : p.checkpoints.take_warnings())
    if (p.place.mesh.first()) complain(warning);
}

bool is_for_the_user(ExitCode code) { return code == ExitCode::usage || code == ExitCode::data || code == ExitCode::checkpoint; }

// The table of contents: who am I, what do I hold, where is the data; what was saved, and on with it.
ExitCode run_to_end(const Order& order) {
  const bool speaks = order.world.rank() == 0;
  watch_signals(speaks);
  StopNotice notice(speaks);
  RunParts parts(order);
  order.progress.locked = speaks;
  if (const int64_t signal = largest(parts.place.mesh.all(), stop_signal()); signal != 0) {  // before the state is restored
    if (speaks) complain(stopped_line(static_cast<int>(signal), 0));
    if (speaks) order.progress.step = newest_checkpoint(order.progress.directory);
    order.ending(ExitCode::stopped);
    return ExitCode::stopped;
  }
  const StopNoticeVoice voice(notice, [&log = parts.log](const std::string& line) { log ? log->note(line) : complain(line); });
  try {
    int64_t& step = order.progress.step = restore(parts.run, parts.checkpoints, order.resume, parts.history, parts.place.journal);
    order.progress.owned = true;  // rank 0 holds the run's lock for all
    note_run(order.progress.directory);
    parts.loader.seek(step);
    if (parts.place.mesh.first()) open_log(order, parts, step);
    for (const std::string& line : parts.machines) parts.log->note(line);
    SaveScheduler saves(parts.run, parts.history, parts.checkpoints, parts.log, parts.place.journal);
    saves.keep(parts.records);
    const Scrubber scrubber(scrubs_of(order, parts));
    saves.scrubs([&scrubber] { return scrubber.shard_bytes() + scrubber.checkpoint_bytes(); });
    Session session = session_of(order, parts, saves, {.notice = notice, .scrubber = scrubber});
    if (order.ready) order.ready(parts.run);
    parts.place.journal.doing("training"), note_doing("training");
    const ExitCode code = loop(session, step);
    if (parts.place.mesh.first()) keep_peak(parts.peak, order.progress.directory);
    parts.place.journal.doing("ending"), note_doing("ending");
    note_scrubs(parts, scrubber);
    order.ending(code);
    finish(parts);
    return code;
  } catch (const std::exception& error) {
    order.failed(error);
    throw;
  }
}

}  // namespace

ExitCode train(const RunConfig& config, World& world, const ResumeChoice& resume, const std::function<void(TrainState&)>& ready) {
  RunProgress progress{.directory = config.train.directory()};
  const FreshRun fresh(progress.directory);
  const auto leave = [&](ExitCode code, const char* cause, const std::string& message) {
    if (progress.owned) write_exit(progress.directory, code, cause, world.rank(), progress.step, message, host_name());
  };
  bool told = false;
  const auto failed = [&](const std::exception& error) {
    if (std::exchange(told, true)) return;
    const auto left = [&] {
      const bool gone = is_for_the_user(code_of(error)) && world.rank() == 0 && progress.step <= 0 && fresh.remove(progress.locked);
      const auto* unfit = dynamic_cast<const MachineError*>(&error);
      if (unfit != nullptr && progress.owned)
        write_exit(progress.directory, unfit->code(), "machine", static_cast<int>(unfit->rank), progress.step, unfit->what(),
                   unfit->host);
      else if (!gone)
        leave(code_of(error), "error", describe_failure(error));
    };
    if (world.size() > 1) end_all_ranks(world, &config, error, left);
    left();
  };
  const auto ending = [&](ExitCode code) {
    if (world.rank() == 0) leave(code, code == ExitCode::done ? "done" : "signal", "");
  };
  try {
    const ExitCode code = run_to_end({.config = config,
                                      .world = world,
                                      .resume = resume,
                                      .ready = ready,
                                      .progress = progress,
                                      .failed = failed,
                                      .ending = ending});
    if (code == ExitCode::stopped && progress.step <= 0 && world.rank() == 0) fresh.remove(false);
    return code;
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

}  // namespace trireme
