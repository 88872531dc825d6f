#include "train/run/save_scheduler.h"

#include <utility>

#include "base/clock.h"
#include "train/health/last_words.h"

namespace trireme {
namespace {

// Adds the time of a scope, in which steps wait.
class Stall {
 public:
  Stall(Journal& journal, std::optional<RunLog>& log, double& seconds)
      : journal_(journal), log_(log), seconds_(seconds), start_(Clock::now()) {
    journal_.doing("saving"), note_doing("saving");
    if (log_) log_->busy("saving");
  }
  ~Stall() {
    seconds_ += seconds_since(start_);
    journal_.doing("training"), note_doing("training");
    if (log_) log_->idle();
  }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

 private:
  Journal& journal_;
  std::optional<RunLog>& log_;
  double& seconds_;
  Clock::time_point start_;
};

}  // namespace

SeenData read_by_step(const RunConfig& config) {
  return {.sequences = config.train.batch, .tokens = config.train.batch * config.model.context};
}

CheckpointState state_of(const RunConfig& config, std::vector<TensorSlice> slices, int64_t step, const StepStatistics& history) {
  const SeenData seen = history.seen(step, read_by_step(config));
  CheckpointState state{.slices = std::move(slices),
                        .counters = {{"sequences", seen.sequences}, {"tokens", seen.tokens}, {"seed", config.train.seed}},
                        .config = to_yaml(config),
                        .finite = true};
  history.store(state.counters);
  return state;
}

SaveScheduler::SaveScheduler(TrainState& run, const StepStatistics& history, Checkpoints& checkpoints, std::optional<RunLog>& log,
                             Journal& journal)
    : config_(run.config),
      history_(history),
      checkpoints_(checkpoints),
      log_(log),
      journal_(journal),
      copy_(run.device, state_slices(run, Ownership::saved), run.config.checkpoint.async ? Copies::always : Copies::where_needed) {
  if (log_) checkpoints_.before_commit([&log] { log->sync(); });
}

void SaveScheduler::begin(int64_t step, Tier tier) {
  start(step, tier);
  if (!config_.checkpoint.async) end();
}

void SaveScheduler::save_at_last(int64_t step) {
  start(step, Tier::disk);
  SaveResult result;
  {
    const Stall stall(journal_, log_, stall_);
    result = checkpoints_.end();
  }
  ended(result);
}

void SaveScheduler::start(int64_t step, Tier tier) {
  end();
  stall_ = 0;
  const Stall stall(journal_, log_, stall_);
  const auto before = Clock::now();
  copy_.fetch();
  snapshot_ = seconds_since(before);
  CheckpointState state = state_of(config_, copy_.slices(), step, history_);
  state.records = records_;
  if (log_) state.records["metrics"] = log_->recorded();
  checkpoints_.begin(
      step_ = step, std::move(state), [this] { copy_.wait(); }, tier);
}

void SaveScheduler::advance() {
  note_outcome([&] { return checkpoints_.advance(); });
}

void SaveScheduler::end() {
  note_outcome([&] { return std::optional(checkpoints_.end()); });
}

// Handles the result of the save under way, if there is one; the steps wait meanwhile.
template <class Call>
void SaveScheduler::note_outcome(Call call) {
  if (!checkpoints_.saving()) return;
  std::optional<SaveResult> result;
  try {
    const Stall stall(journal_, log_, stall_);
    result = call();
  } catch (const CheckpointError& error) {
    failed(error);
  }
  if (result) ended(*result);
}

void SaveScheduler::ended(const SaveResult& result) {
  if (result.tier == Tier::disk) saved_ = result.step;
  last_ = {.result = result, .snapshot = snapshot_, .stall = stall_};
  if (!log_) return;
  for (const std::string& warning : checkpoints_.take_warnings()) log_->note(warning);
  log_->saved({.step = result.step,
               .bytes = result.bytes,
               .seconds = result.seconds,
               .write_seconds = result.write_seconds,
               .stall_ms = 1e3 * stall_,
               .in_memory = result.tier == Tier::memory,
               .run = checkpoints_.run_id(),
               .scrubbed = scrubbed_ ? scrubbed_() : 0});
}

// The previous checkpoint is intact.
void SaveScheduler::failed(const CheckpointError& error) {
  if (!log_) return;
  for (const std::string& warning : checkpoints_.take_warnings()) log_->note(warning);
  log_->note(std::string("warning: no checkpoint of step ") + std::to_string(step_) + ": " + error.what());
}

}  // namespace trireme
