// Identity half of Checkpoints: the run's token, its lineage, what does not belong to it, and what is damaged.
#include <utility>

#include "checkpoint/checkpoints.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/problem.h"
#include "checkpoint/run_id.h"
#include "parallel/host_collectives.h"

namespace trireme {

// On rank 0. A run that starts again on purpose is another run: it leaves the lineage aside.
void Checkpoints::open_records(Resume resume) {
  run_id_ = read_run_id(run_directory_);
  lineage_.emplace(io_, lineage_path(run_directory_));
  if (resume == Resume::never && lineage_->last().step >= 0) {
    adopt_id(random_id());
    warnings_.push_back(text("starting from step 0; the lineage of the earlier checkpoints is kept as ",
                             set_aside(io_, lineage_path(run_directory_))));
    lineage_.emplace(io_, lineage_path(run_directory_));
  }
  for (std::string& problem : lineage_->take_warnings()) warnings_.push_back(std::move(problem));
  retention_.trust(lineage_->manifests());
  retention_.committed([this](const Manifest& manifest, uint64_t digest) {
    lineage_->append(manifest, digest);
    if (unnamed_) unnamed_ = !problem_of([&] { keep_run_id(run_directory_, manifest.run); }).empty();
  });
}

// A disk that refuses is no reason to end: the next start takes the id from the newest checkpoint.
void Checkpoints::adopt_id(const std::string& id) {
  run_id_ = id;
  if (ranks_.rank() > 0) return;
  if (const std::string problem = problem_of([&] { run_lock_->check(), keep_run_id(run_directory_, id); }); !problem.empty())
    warnings_.push_back(problem);
}

const std::string& Checkpoints::run_id() {
  if (!run_id_.empty()) return run_id_;
  run_id_ = random_id();
  if (ranks_.rank() > 0) return run_id_;
  // Another job may hold the run by now, and have named it.
  const auto name_it = [&] { run_lock_->check(), run_id_ = first_run_id(run_directory_, run_id_); };
  if (const std::string problem = problem_of(name_it); !problem.empty()) {
    unnamed_ = true;  // the first commit names it
    warnings_.push_back(problem);
  }
  return run_id_;
}

void Checkpoints::note_lost(int64_t step) {
  if (!lineage_) return;
  const std::string problem = problem_of(
      [&] { lineage_->append(Commit{.step = step, .save = "", .run = run_id_, .manifest = "", .time = "", .records = {}}); });
  if (!problem.empty()) warnings_.push_back(problem);
}

void Checkpoints::require_not_missing() {
  std::string problem;
  if (lineage_ && lineage_->last().step > 0) {
    const Commit& last = lineage_->last();
    problem = text(directory_, " holds no checkpoint, but step ", last.step, " was committed", last.time.empty() ? "" : " at ",
                   last.time, ", says ", lineage_path(run_directory_), kMissingRemedy);
  }
  throw_together<CheckpointError>(ranks_, problem);
}

// Why a checkpoint on disk is not this run's; "" if it is, or if its manifest cannot say.
std::string Checkpoints::foreign(const Found& found) const {
  std::string why;
  if (ranks_.rank() == 0 && !found.in_memory && !run_id_.empty())
    problem_of([&] {
      const std::string run = load_step(io_, found.directory, found.step).run;
      if (run != run_id_)
        why = text(found.directory, "/", step_name(found.step), " belongs to run ", run, ", not to ", run_id_, " of ",
                   run_directory_, "/run.id: it is ignored. Move it away, or start from it with --resume and another train.name");
    });
  return broadcast(ranks_, why);
}

void Checkpoints::doubt(int64_t step, const std::string& problem) {
  if (ranks_.rank() == 0) return retention_.doubt(step);
  const std::lock_guard lock(mutex_);
  doubts_.push_back({.step = step, .problem = problem.substr(0, problem.find('\n'))});
}

// They stay until a save that carries them has succeeded.
std::vector<SaveSummary::Damage> Checkpoints::doubts_to_send() const {
  const std::lock_guard lock(mutex_);
  sent_doubts_ = doubts_.size();
  return doubts_;
}

void Checkpoints::drop_sent_doubts() {
  const std::lock_guard lock(mutex_);
  doubts_.erase(doubts_.begin(), doubts_.begin() + static_cast<std::ptrdiff_t>(std::exchange(sent_doubts_, 0)));
}

}  // namespace trireme
