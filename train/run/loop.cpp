#include "train/run/loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "parallel/host_collectives.h"
#include "train/health/signals.h"
#include "train/run/control_file.h"
#include "train/run/evaluations.h"
#include "train/run/replica_check.h"
#include "train/run/step_repeat.h"
#include "train/run/steps.h"

namespace trireme {
namespace {

void compare_now(Session& s, int64_t step) {
  const Doing doing(s.journal, "comparing replicas");
  const std::string found = compare_replicas(s.run);
  if (found.empty()) return;
  s.saves.end();
  s.loader.seek(step - 1);
  const std::string ranks = ranks_that_vary(s.run, next_batch(s), step - 1);
  throw Error(text("replicas diverged after step ", step, ": ", found, "; ", fault_of(ranks), ". ",
                   ranks.empty() ? "Training" : "Rerun without that machine; training", " resumes from the newest checkpoint"));
}

// Values that all ranks share before a step begins.
struct Agreed {
  int signal = 0;       // of a rank that was asked to stop; 0: none
  bool saving = false;  // a rank is still at work on a save
  Requests asked{};
  int64_t slow = 0;  // a rank for which the run ends, plus one; 0: none
  BadSteps bad_steps{};
};

Agreed agree(Session& s, int64_t bad, const Requests& asked = {}, int64_t slow = 0) {
  const std::vector<int64_t> most =
      largest(s.run.mesh.all(), {stop_signal(), s.saves.busy(), bad, -bad, asked.profile, slow, s.meter.due(), asked.evaluate});
  s.notice.acknowledge(static_cast<int>(most[0]));
  if (most[6] != 0) s.meter.record(s.log);
  return {.signal = static_cast<int>(most[0]),
          .saving = most[1] != 0,
          .asked = {.profile = most[4], .evaluate = most[7] != 0},
          .slow = most[5],
          .bad_steps = {.most = most[2], .fewest = -most[3]}};
}

// The work that is due after a step.
struct Due {
  bool last, save, to_memory, evaluate, compare;
  bool anything() const { return save || to_memory || evaluate || compare; }
};

// A save by one replica alone is preceded by a comparison of all.
bool checks_saves(const Session& s) { return s.config.train.compare_every > 0 && s.run.mesh.copies() > 1; }

// `asked`: for an evaluation, which comes when no copies are apart.
Due due_after(const Session& s, int64_t step, bool asked = false) {
  const TrainConfig& t = s.config.train;
  Due due{};
  due.last = step == t.steps;
  due.save = due.last || s.checkpoints.due(step);
  due.evaluate = (t.eval_every > 0 && (due.last || step % t.eval_every == 0)) ||
                 (asked && (step % s.config.parallel.local_steps == 0 || !s.config.parallel.local()));
  due.to_memory = !due.save && s.checkpoints.due_in_memory(step) && !s.checkpoints.saving();
  due.compare = s.run.mesh.replicas() > 1 && t.compare_every > 0 &&
                (step % t.compare_every == 0 || (checks_saves(s) && due.save && !due.last));
  return due;
}

// The evaluation that an earlier start has abandoned, if any.
Evaluated catch_up(Session& s, int64_t step) {
  if (step == 0 || s.resume.from != "auto" || !due_after(s, step).evaluate) return Evaluated::nothing;
  return evaluate_now(s, step);
}

ExitCode stopped(Session& s, int64_t step, int signal) {
  s.note(stopped_line(signal, step));
  if (s.log) s.log->last_words();
  return ExitCode::stopped;
}

// Whether the words of an error say that a disk has no room.
bool says_full(const std::string& error) {
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT},
                             [&](int reason) { return error.find(std::strerror(reason)) != std::string::npos; });
}

// The last save, which must succeed: the newest checkpoint before is that of step `newest`, 0 if there is none.
void save_last(Session& s, int64_t step, int64_t newest) {
  try {
    s.saves.save_at_last(step);
  } catch (const CheckpointError& error) {
    std::string what = error.what();
    const bool full = says_full(what);
    what += newest > 0 ? "; steps after step " + std::to_string(newest) + " are lost: " : "; all steps are lost: ";
    what += std::string(full ? "free space" : "mend this") + " and give the same command, which repeats them";
    const std::string run = s.config.train.directory();
    if (full && newest > 0) what += ". All but the newest checkpoint in " + run + "/checkpoints can be removed";
    throw CheckpointError(what);
  }
}

}  // namespace

// Lines are written before the checkpoint that covers them, so that a resume finds them.
ExitCode loop(Session& s, int64_t& step) {
  const int64_t steps_wanted = s.config.train.steps;
  const int64_t restored = s.checkpoints.restored_from_disk() ? step : 0;  // of which nothing need be saved
  s.notice.begun(step), s.notice.ended(step), s.notice.saved(restored);
  Evaluated evaluated = catch_up(s, step);
  if (step >= steps_wanted && evaluated == Evaluated::nothing)
    s.note("already finished: train.steps = " + std::to_string(steps_wanted) +
           "; a larger train.steps continues, another train.name begins anew");
  Agreed agreed;
  ControlFile control(s);
  bool asked = false;  // for an evaluation
  Steps steps(s, step);
  const auto continues = [&] {
    agreed = agree(s, steps.bad(), control.take(), steps.stragglers().wanted_end());
    s.saving = agreed.saving, asked |= agreed.asked.evaluate;
    if (agreed.asked.profile > 0) steps.profile().trace(steps.begun() + 1, agreed.asked.profile);
    return agreed.signal == 0 && agreed.slow == 0;
  };
  while (steps.begun() < steps_wanted && continues()) {
    s.scrubber.check();
    if (!agreed.saving) s.saves.advance();
    steps.judge(agreed.bad_steps);
    steps.begin();
    if (steps.stragglers().due()) steps.stragglers().judge(step);
    const Due due = due_after(s, steps.begun(), asked);
    if (due.anything()) steps.settle();
    if (due.compare) compare_now(s, step);
    if (due.evaluate) evaluated = evaluate_now(s, step), asked = false;
    if (due.save && !due.last) s.saves.begin(step);
    if (due.to_memory) s.saves.begin(step, Tier::memory);
    s.notice.saved(std::max(restored, s.saves.saved()));
    if (steps.computed()) s.run.device.freeze();  // from the second step on, nothing is allocated
  }
  steps.settle();
  if (steps.computed()) s.meter.record_last(s.log);
  s.watchdog.last_step_done();
  s.saves.end();
  if (const int64_t newest = std::max(restored, s.saves.saved()); step > newest) {
    if (checks_saves(s)) compare_now(s, step);
    save_last(s, step, newest);
  }
  if (step < steps_wanted && agreed.slow > 0 && agreed.signal == 0) steps.stragglers().end_run(agreed.slow - 1, step);
  if (step < steps_wanted || evaluated == Evaluated::abandoned) return stopped(s, step, agree(s, 0).signal);
  if (s.log) s.log->finish();
  return ExitCode::done;
}

}  // namespace trireme
