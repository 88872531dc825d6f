// A rank of a training, as train/run/ drives it: the product's World, Comm, Nodes and Checkpoints
// around steps that take simulated time.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <utility>

#include "checkpoint/checkpoints.h"
#include "parallel/host_collectives.h"
#include "parallel/nodes.h"
#include "parallel/world.h"
#include "test/simulation/job.h"
#include "test/simulation/state.h"
#include "train/run/launch_agreement.h"
#include "train/telemetry/metrics.h"

namespace trireme::simulation {

namespace {

ExitCode code_of(const std::exception& error) {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr ? ours->code() : ExitCode::internal;
}

// Remembers a signal, as train/health/signals.h does; the World keeps the number.
void remember_signal(int) {}

class Rank {
 public:
  explicit Rank(Cluster& cluster)
      : cluster_(cluster),
        job_(cluster.job),
        all_("all", 0, world_.rank(), world_.launched()),
        nodes_(world_),
        live_(world_.rank(), world_.size()),
        copy_(world_.rank(), world_.size()) {}

  ExitCode run() {
    std::optional<Checkpoints> made;
    try {
      made.emplace(job_.checkpoint, kRun, Resume::automatic, simulated_io(), all_, nodes_);
      checkpoints_ = &*made;
      const bool complete = warn();
      if (all_.rank() == 0 && complete) cluster_.truth.opened();
      restore();
      const ExitCode code = loop();
      made->finish();
      if (all_.rank() == 0) write_exit(kRun, code, code == ExitCode::done ? "done" : "signal", 0, step_, "", host_name());
      return code;
    } catch (const std::exception& error) {
      note(error.what());
      if (made) write_exit(kRun, code_of(error), "error", static_cast<int>(all_.rank()), step_, error.what(), host_name());
      world_.abort(code_of(error));
    }
  }

 private:
  void note(const std::string& line) {
    const Unowned unowned;
    cluster_.world.note(line);
  }

  void restore() {
    CheckpointState state = live_.as_of(0);
    const std::optional<int64_t> step = checkpoints_->restore(state);
    (void)warn();
    step_ = restored_ = step.value_or(0);
    if (!step) live_.fill(0);
    cluster_.truth.restored(step_, live_.differs_from(step_));
    if (step) checkpoints_->confirm(live_.slices());
    if (!checkpoints_->restored_from_disk()) restored_ = 0;
  }

  // False: there were warnings.
  bool warn() {
    const std::vector<std::string> warnings = checkpoints_->take_warnings();
    for (const std::string& warning : warnings) {
      note("warning: " + warning);
      if (warning.find("durable") != std::string::npos) cluster_.truth.warned();
    }
    return warnings.empty();
  }

  // Handles the result of a save.
  template <class Advance>
  void outcome(Advance advance) {
    if (!checkpoints_->saving()) return;
    try {
      if (const std::optional<SaveResult> result = advance()) saved(*result);
    } catch (const CheckpointError& error) {
      note(std::string("no checkpoint: ") + error.what());
    }
    (void)warn();
  }
  void saved(const SaveResult& result) {
    if (result.tier == Tier::disk) saved_ = result.step;
    if (all_.rank() == 0) cluster_.truth.saved(result.step, result.tier == Tier::memory);
  }
  void end() {
    outcome([&] { return std::optional(checkpoints_->end()); });
  }

  void begin(Tier tier) {
    end();
    copy_.fill(step_);
    checkpoints_->begin(step_, copy_.as_of(step_), {}, tier);
    if (!job_.checkpoint.async) end();
  }

  bool agree() {
    const int signal = cluster_.world.self().signalled;
    const std::vector<int64_t> most = largest(all_, std::vector<int64_t>{signal, checkpoints_->busy()});
    stop_ = most[0] != 0, saving_ = most[1] != 0;
    return !stop_;
  }

  void compute() {
    cluster_.world.sleep(cluster_.world.random.between(job_.step_time / 2, job_.step_time));
    if (++step_ == job_.doomed_at && all_.rank() == all_.size() - 1) cluster_.world.die(cluster_.world.self(), SIGKILL);
    live_.fill(step_);
    if (all_.rank() == 0)
      std::ofstream(std::string(kRun) + "/metrics.jsonl", std::ios::app) << "{\"step\": " << step_ << "}" << std::endl;
  }

  ExitCode loop() {
    while (step_ < job_.steps && agree()) {
      if (!saving_) outcome([&] { return checkpoints_->advance(); });
      compute();
      const bool last = step_ == job_.steps, save = !last && checkpoints_->due(step_);
      if (save) begin(Tier::disk);
      if (!last && !save && checkpoints_->due_in_memory(step_) && !checkpoints_->saving()) begin(Tier::memory);
    }
    end();
    if (step_ > std::max(restored_, saved_)) {
      copy_.fill(step_);
      checkpoints_->begin(step_, copy_.as_of(step_));
      saved(checkpoints_->end());
    }
    if (step_ >= job_.steps) return ExitCode::done;
    if (all_.rank() == 0) cluster_.truth.stopped(step_);
    return ExitCode::stopped;
  }

  Cluster& cluster_;
  const Job& job_;
  trireme::World world_;
  Comm all_;
  Nodes nodes_;
  State live_, copy_;
  Checkpoints* checkpoints_ = nullptr;
  int64_t step_ = 0, restored_ = 0, saved_ = -1;
  bool stop_ = false, saving_ = false;
};

}  // namespace

int run_rank(Cluster& cluster) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) std::signal(signal, remember_signal);
  ExitCode code{};
  {
    Rank rank(cluster);
    code = rank.run();
  }
  return static_cast<int>(code);
}

}  // namespace trireme::simulation
