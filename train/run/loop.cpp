#include "train/run/loop.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "parallel/host_collectives.h"
#include "train/health/signals.h"
#include "train/run/nan_search.h"
#include "train/run/replica_check.h"

namespace trireme {
namespace {

constexpr int kMostBad = 10;  // steps in a row that are no update, before the run gives up or, where they are numbers, gives in

// What this rank's thread does, as others see it, as long as the scope.
class Doing {
 public:
  Doing(Journal& journal, const char* what) : journal_(journal) { journal_.doing(what); }
  ~Doing() { journal_.doing("training"); }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  Journal& journal_;
};

void log_step(Session& s, int64_t step, const StepResult& result, double seconds, double waited) {
  if (!s.log) return;
  const Doing doing(s.journal, "logging");
  const int64_t tokens = s.config.train.batch * s.config.model.context;
  s.log->step({.step = step,
               .loss = result.loss,
               .grad_norm = result.grad_norm,
               .lr = result.lr,
               .tokens = step * tokens,
               .step_ms = seconds * 1e3,
               .tokens_per_second = static_cast<double>(tokens) / seconds,
               .data_ms = waited * 1e3,
               .mfu = s.peak.mfu(s.flops, seconds, s.run.launcher.ahead())});
}

void evaluate_now(Session& s, int64_t step) {
  const Doing doing(s.journal, "evaluating");
  if (s.validation) {
    const Evaluation e = evaluate(s.run, *s.validation, s.config.train.eval_sequences);
    if (s.log)
      s.log->eval({.step = step,
                   .val_loss = static_cast<float>(e.loss),
                   .bits_per_byte = static_cast<float>(e.bits_per_byte),
                   .val_tokens = e.targets,
                   .seconds = e.seconds});
  }
  for (const ChoiceTask& task : s.choices) {
    const ChoiceScore score = task.score(s.run);
    if (!s.log) continue;
    s.log->choices({.step = step,
                    .name = task.name(),
                    .accuracy = score.accuracy,
                    .accuracy_error = score.accuracy_error,
                    .normalised = score.normalised,
                    .normalised_error = score.normalised_error,
                    .chance = score.chance,
                    .questions = score.questions,
                    .seconds = score.seconds},
                   describe(score));
  }
}

void compare_now(Session& s, int64_t step) {
  const Doing doing(s.journal, "comparing replicas");
  const std::string found = compare_replicas(s.run);
  if (found.empty()) return;
  s.saves.end();
  throw Error(
      text("after step ", step, " replicas are not alike: ", found,
           ": a processor or its memory errs. The same command goes on from the newest checkpoint; leave that machine out"));
}

// Steps that were no update and are not judged yet, of the rank that has most and of the one that has fewest.
struct BadSteps {
  int64_t most, fewest;
};

// What all ranks know alike before a step begins.
struct Agreed {
  int signal = 0;       // of a rank that was asked to stop; 0: none
  bool saving = false;  // a rank is still at work on a save
  BadSteps bad_steps{};
};

Agreed agree(Session& s, int64_t bad) {
  const std::vector<int64_t> most = largest(s.run.mesh.all(), {stop_signal(), s.saves.busy(), bad, -bad});
  return {.signal = static_cast<int>(most[0]), .saving = most[1] != 0, .bad_steps = {.most = most[2], .fewest = -most[3]}};
}

// Steps handed over, of which on a GPU one is always on its way: the host reads the loss of a step when the next has begun.
class Steps {
 public:
  Steps(Session& session, int64_t& ended) : session_(session), begun_(ended), ended_(ended) {}

  int64_t begun() const { return begun_; }
  bool computed() const { return computed_; }  // one, at least
  void begin() {
    const int64_t step = begun_ + 1;
    if (holds(session_.config.train.leave_out, step)) return leave_out(step);
    if (begun_ == ended_) since_ = Clock::now();
    session_.journal.begin(step);
    computed_ = true;
    const Batch batch = next();
    waited_[static_cast<size_t>(step % 2)] = batch.waited;
    begin_step(session_.run, batch, begun_++, session_.history.limits(step));
    if (begun_ - ended_ > session_.run.launcher.ahead()) end();
  }
  void end_all() {
    while (ended_ < begun_) end();
  }

  // Steps that were no update and are not judged: to be agreed on by all ranks.
  int64_t bad() const { return static_cast<int64_t>(bad_.size()); }
  // All ranks, with the counts of all. They are the same on each, unless one of them errs.
  void judge(const BadSteps& bad_steps) {
    if (bad_steps.most == 0) return;
    end_all();
    if (bad_steps.most != bad_steps.fewest) disagree();
    for (const Bad& bad : std::exchange(bad_, {})) judge(bad);
  }
  // The same, when the ranks have not agreed yet.
  void settle() {
    end_all();
    const std::vector<int64_t> most = largest(session_.run.mesh.all(), {bad(), -bad()});
    judge({.most = most[0], .fewest = -most[1]});
  }

 private:
  struct Bad {
    int64_t step, weights;  // the update whose weights it met
    StepResult result;
    int64_t refused, not_finite;  // steps in a row up to this one
    std::string describe() const { return std::string(text("step ", step, ": ", StepStatistics::describe(result))); }
  };

  Batch next() {
    const Doing doing(session_.journal, "reading");
    return session_.loader.next();
  }

  void leave_out(int64_t step) {
    settle();
    next();
    pass_over(step);
    session_.note("step " + std::to_string(step) + ": left out, as train.leave_out says");
  }
  // Steps up to here are done, without an update since the state was last right.
  void pass_over(int64_t step) {
    session_.run.optimizer.skip_update(session_.run.device.compute(), step);
    begun_ = ended_ = step;
  }

  void end() {
    const StepResult result = end_step(session_.run, ended_);
    ++ended_;
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
    session_.watchdog.took(seconds);
    log_step(session_, ended_, result, seconds, waited_[static_cast<size_t>(ended_ % 2)]);
    StepStatistics& history = session_.history;
    history.saw(ended_, result);
    if (result.updated)
      weights_ = ended_;
    else
      bad_.push_back({ended_, weights_, result, history.refused(), history.not_finite()});
  }

  // Of numbers that all ranks share.
  [[noreturn]] void disagree() {
    std::string mine = session_.run.mesh.describe() + " has no bad step";
    if (!bad_.empty()) mine = session_.run.mesh.describe() + " has " + bad_.back().describe();
    std::string all;
    for (const std::string& told : gather(session_.run.mesh.all(), mine)) all += "\n" + told;
    throw Error("ranks do not agree on whether a step was an update: a processor or its memory errs" +
                broadcast(session_.run.mesh.all(), all));
  }

  void judge(const Bad& bad) {
    std::string what = bad.describe();
    const bool finite = bad.not_finite == 0;
    if (!finite) what += ", first " + cause(bad.step);
    const BadStep wanted = session_.config.train.on_bad_step;
    if (wanted == BadStep::stop || bad.not_finite >= kMostBad) give_up(bad, what);
    if (wanted == BadStep::skip) session_.note(what + ": the update was skipped");
    if (wanted == BadStep::rollback && bad.step > rolled_back_) roll_back(what);
    if (!finite || bad.refused < kMostBad) return;
    session_.history.forget();
    session_.note("ten steps in a row stood out: what is usual is learnt anew");
  }

  std::string cause(int64_t step) {
    const Doing doing(session_.journal, "looking for the fault");
    session_.loader.seek(step - 1);
    const std::string found = find_not_finite(session_.run, session_.loader.next(), begun_ - 1);
    session_.loader.seek(begun_);
    return found.empty() ? "nowhere when computed again: a processor or memory may be at fault" : "in " + found;
  }

  // The state of the newest checkpoint goes on with the batch after those that were begun.
  void roll_back(const std::string& what) {
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

  [[noreturn]] void give_up(const Bad& bad, const std::string& what) {
    session_.saves.end();
    const bool many = session_.config.train.on_bad_step != BadStep::stop;
    throw NumericsError(text(what, many ? std::string(text(": the last of ", kMostBad, " steps in a row without an update")) : "",
                             "; the weights are those of step ", bad.weights, ". A lower train.lr, a longer train.warmup or ",
                             "train.clip may help; train.leave_out passes over what makes it come again"));
  }

  Session& session_;
  int64_t begun_;
  int64_t& ended_;
  int64_t weights_ = ended_;  // the last step that was an update, or of the checkpoint whose state goes on
  bool computed_ = false;
  std::vector<Bad> bad_;            // not judged yet
  int64_t rolled_back_ = 0;         // steps up to here are dealt with
  Clock::time_point since_{};       // the end of the step before, or the beginning of the first
  std::array<double, 2> waited_{};  // seconds for its batch, of the last steps begun
};

}  // namespace

// Lines are written before the checkpoint that covers them, so that a resume finds them.
ExitCode loop(Session& s, int64_t& step) {
  const TrainConfig& t = s.config.train;
  if (step >= t.steps)
    s.note("already finished: train.steps = " + std::to_string(t.steps) +
           "; a larger train.steps goes on, another train.name begins anew");
  const int64_t restored = s.checkpoints.restored_from_disk() ? step : 0;  // of which nothing need be saved
  Agreed agreed;
  Steps steps(s, step);
  const auto goes_on = [&] {
    agreed = agree(s, steps.bad());
    return agreed.signal == 0;
  };
  // What replicas hold alike, where it is saved by one of them alone.
  const bool checks_saves = t.compare_every > 0 && s.run.mesh.copies() > 1;
  while (steps.begun() < t.steps && goes_on()) {
    if (!agreed.saving) s.saves.advance();
    steps.judge(agreed.bad_steps);
    steps.begin();
    const bool last = steps.begun() == t.steps, save = last || s.checkpoints.due(steps.begun());
    const bool evaluates = last || (t.eval_every > 0 && steps.begun() % t.eval_every == 0);
    const bool to_memory = !save && s.checkpoints.due_in_memory(steps.begun()) && !s.checkpoints.saving();
    const bool compares = s.run.mesh.replicas() > 1 && t.compare_every > 0 &&
                          (steps.begun() % t.compare_every == 0 || (checks_saves && save && !last));
    if (save || to_memory || evaluates || compares) steps.settle();
    if (compares) compare_now(s, step);
    if (evaluates) evaluate_now(s, step);
    if (save && !last) s.saves.begin(step);
    if (to_memory) s.saves.begin(step, Tier::memory);
    if (steps.computed()) s.run.device.freeze();  // from the second step on, nothing is allocated
  }
  steps.settle();
  s.watchdog.last_step_done();
  s.saves.end();
  if (step > std::max(restored, s.saves.saved())) {
    if (checks_saves) compare_now(s, step);
    s.saves.save_at_last(step);
  }
  if (step < t.steps) {
    const std::string after = step > 0 ? "after step " + std::to_string(step) + ", which is saved" : "before the first step";
    s.note(std::string("stopped by signal (") + strsignal(agreed.signal) + ") " + after + "; the same command continues");
    return ExitCode::stopped;
  }
  if (s.log) s.log->finish();
  return ExitCode::done;
}

}  // namespace trireme
