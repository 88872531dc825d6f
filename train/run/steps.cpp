#include "train/run/steps.h"

#include <chrono>
#include <utility>

#include "parallel/host_collectives.h"
#include "train/run/nan_search.h"
#include "train/run/step_repeat.h"

namespace trireme {
namespace {

constexpr int kMostBad = 10;  // steps in a row without an update before the run ends or, if they are finite, resets its statistics
constexpr int64_t kZeroSteps = 3;  // in a row with gradients of zero before the model counts as diverged

}  // namespace

Batch next_batch(Session& session) {
  const Comm& replicas = session.run.mesh.gradient_group();
  Batch batch = [&] {
    const Doing doing(session.journal, "reading");
    const StreamPart part(session.run.device.compute(), "data");
    return session.loader.next();
  }();
  if (!session.loader.padded()) return batch.valid *= replicas.size(), batch;
  const PartSpan waits(session.run.device.compute().clock(), replicas.axis().c_str(), true);
  batch.valid = total(replicas, batch.valid);
  return batch;
}

void Steps::begin() {
  const int64_t step = begun_ + 1;
  if (holds(session_.config.train.leave_out, step)) return leave_out(step);
  profile_.begin(step);
  if (begun_ == ended_) since_ = Clock::now(), session_.run.device.clock().restart();
  session_.journal.begin(step), note_step(step);
  session_.notice.begun(step);
  computed_ = true;
  {
    const TraceSpan traced(session_.run.device.compute().trace(), "step", step);
    const Batch batch = next_batch(session_);
    waited_[static_cast<size_t>(step % 2)] = batch.waited;
    begin_step(session_.run, batch, begun_++, session_.history.limits(step));
  }
  if (begun_ - ended_ > session_.run.launcher.ahead()) end();
}

void Steps::end_all() {
  while (ended_ < begun_) end();
}

void Steps::judge(const BadSteps& bad_steps) {
  if (bad_steps.most == 0) return;
  end_all();
  if (bad_steps.most != bad_steps.fewest) disagree();
  for (const Bad& bad : std::exchange(bad_, {})) judge(bad);
}

void Steps::settle() {
  end_all();
  const std::vector<int64_t> most = largest(session_.run.mesh.all(), {bad(), -bad()});
  judge({.most = most[0], .fewest = -most[1]});
}

void Steps::leave_out(int64_t step) {
  settle();
  next_batch(session_);
  pass_over(step);
  session_.note("step " + std::to_string(step) + ": left out, as train.leave_out says");
}

// Steps up to here are done, without an update since the state was last right.
void Steps::pass_over(int64_t step) {
  session_.run.optimizer.skip_update(session_.run.device.compute(), step);
  session_.run.optimizer.meet(session_.run.device.compute(), step);
  begun_ = ended_ = step;
  session_.notice.begun(step), session_.notice.ended(step);
}

void Steps::end() {
  const StepResult result = end_step(session_.run, ended_);
  session_.notice.ended(++ended_);
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
  session_.watchdog.took(seconds);
  stragglers_.step_ended(!session_.saving && !profile_.tracing());
  log(result, seconds, parts_of_step());
  StepStatistics& history = session_.history;
  history.saw(ended_, result);
  warn_of_zero_gradients(result);
  if (!result.updated) note_bad(result);
  const ParallelConfig& parallel = session_.config.parallel;
  if (result.updated || parallel.meets_after(ended_)) weights_ = ended_;
  profile_.end(ended_);
}

void Steps::note_bad(const StepResult& result) {
  const StepStatistics& history = session_.history;
  bad_.push_back({ended_, weights_, result, history.refused(), history.not_finite()});
  const bool finite = history.not_finite() == 0;
  if (session_.log) session_.log->event({.step = ended_, .event = finite ? "spike" : "not_finite", .since = ended_}, "");
}

// On the CPU, where a step ends before the next one begins. A GPU's parts are not those of its host.
std::vector<PartTime> Steps::parts_of_step() const {
  std::vector<PartTime> parts;
  Device& device = session_.run.device;
  if (device.place() != Place::cpu) return parts;
  for (const PartClock::Part& part : device.clock().parts())
    parts.push_back({std::string(part.waits ? "wait_" : "") + part.name.data(), part.seconds * 1e3});
  return parts;
}

void Steps::log(const StepResult& result, double seconds, std::vector<PartTime> parts) {
  if (!session_.log) return;
  const Doing doing(session_.journal, "logging");
  const SeenData each = read_by_step(session_.config);
  const StepFlops& flops = session_.flops;
  const double hfu = session_.peak.use(flops.executed, seconds, session_.run.launcher.ahead());
  session_.log->step({.step = ended_,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .lr = result.lr,
                      .tokens = session_.history.seen(ended_, each).tokens,
                      .step_tokens = each.tokens,
                      .step_ms = seconds * 1e3,
                      .tokens_per_second = static_cast<double>(each.tokens) / seconds,
                      .data_ms = waited_[static_cast<size_t>(ended_ % 2)] * 1e3,
                      .mfu = hfu * flops.model / flops.executed,
                      .mfu_full = hfu * flops.full / flops.executed,
                      .hfu = hfu,
                      .parts = std::move(parts)});
}

void Steps::warn_of_zero_gradients(const StepResult& result) {
  if (!session_.log || session_.history.zero_gradients() != kZeroSteps) return;
  const int64_t since = ended_ - kZeroSteps + 1;
  const std::string line = text(
      "warning: gradients are zero since step ", since, ": the model has diverged (lr ", significant(result.lr, 4),
      "). Stop it, lower train.lr or lengthen train.warmup, and begin again under another train.name, or with --resume from a ",
      "checkpoint before step ", since);
  session_.log->event({.step = ended_, .event = "zero_gradients", .since = since}, line);
}

// The numbers are shared by all ranks, so a rank that differs has a fault.
void Steps::disagree() {
  std::string mine = session_.run.mesh.describe() + " has no bad step";
  if (!bad_.empty()) mine = session_.run.mesh.describe() + " has " + bad_.back().describe();
  std::string all;
  for (const std::string& line : gather(session_.run.mesh.all(), mine)) all += "\n" + line;
  session_.loader.seek(ended_ - 1);
  const std::string ranks = ranks_that_vary(session_.run, next_batch(session_), ended_ - 1);
  throw Error("ranks disagree on whether a step was an update: " + fault_of(ranks) + broadcast(session_.run.mesh.all(), all));
}

void Steps::judge(const Bad& bad) {
  std::string what = bad.describe();
  const bool finite = bad.not_finite == 0;
  if (!finite) what += cause(bad);
  const BadStep wanted = session_.config.train.on_bad_step;
  if (wanted == BadStep::stop || bad.not_finite >= kMostBad) give_up(bad, what);
  if (wanted == BadStep::skip) session_.note(what + ": the update was skipped");
  if (wanted == BadStep::rollback && bad.step > rolled_back_) roll_back(what);
  if (!finite || bad.refused < kMostBad) return;
  session_.history.forget();
  session_.note(std::to_string(kMostBad) + " consecutive outlier steps: resetting spike statistics");
}

// Computes the step again: names the first number that is not finite, or what the comparison of the bits says.
std::string Steps::cause(const Bad& bad) {
  const Doing doing(session_.journal, "looking for the fault");
  TrainState& run = session_.run;
  session_.loader.seek(bad.step - 1);
  const Batch batch = next_batch(session_);
  go_back_to_weights_of(run, bad.step - 1);
  const NanSearch search = find_not_finite(run, batch, bad.step - 1);
  const bool nowhere = broadcast(run.mesh.all(), search.found).empty();
  std::string said = nowhere ? fault(bad, search.results, batch) : ", first in " + search.found;
  go_back_to_weights_of(run, begun_);
  session_.loader.seek(begun_);
  return said;
}

// The words on a bad step in which no number is found that is not finite. Only other bits from equal inputs accuse the hardware.
std::string Steps::fault(const Bad& bad, const StepResult& again, const Batch& batch) {
  if (weights_ != bad.weights) return ": not found when computed again, with weights of a later step";
  if (same_bits(bad.result, again)) return StepStatistics::overflows(bad.result) ? "" : ": a sum of finite numbers overflows";
  const std::string ranks = ranks_that_vary(session_.run, batch, bad.step - 1);
  return std::string(
      text(": computed again from equal inputs it has other bits (loss ", again.loss, ", gradient norm ", again.grad_norm,
           "): a processor or memory is at fault, ",
           ranks.empty() ? "once: no rank shows it again" : "that of " + ranks + ", which computes other bits each time"));
}

// Loads the newest checkpoint and continues with the batch after those that were begun.
void Steps::roll_back(const std::string& what) {
  const Doing doing(session_.journal, "reading a checkpoint");
  session_.saves.end();
  ResumeChoice newest = session_.resume;
  if (session_.checkpoints.any()) newest.from = "auto";
  StepStatistics then = session_.history;
  weights_ = restore(session_.run, session_.checkpoints, newest, then, session_.journal);
  session_.history.go_back_to(then);
  pass_over(rolled_back_ = begun_);
  session_.note(what + ": back to the state after step " + std::to_string(weights_) + ". Steps " + std::to_string(weights_ + 1) +
                " to " + std::to_string(begun_) + " are left out");
}

void Steps::give_up(const Bad& bad, const std::string& what) {
  session_.saves.end();
  const bool many = session_.config.train.on_bad_step != BadStep::stop;
  throw NumericsError(text(what, many ? std::string(text(": the last of ", kMostBad, " steps in a row without an update")) : "",
                           "; the weights are those of step ", bad.weights, ". A lower train.lr, a longer train.warmup or ",
                           "train.clip may help; train.leave_out skips batches that cause it"));
}

}  // namespace trireme
