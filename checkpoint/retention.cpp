#include "checkpoint/retention.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/removal.h"

namespace trireme {

namespace {

constexpr int64_t kLeastKept = 2;

void require_whole(const Manifest& manifest) {
  try {
    check(manifest);
  } catch (const DamagedCheckpoint& error) {
    throw Error(text("the state cannot be saved: ", error.what()));
  }
}

std::optional<int64_t> updates_of(const Manifest& manifest) {
  const auto found = manifest.counters.find("updates");
  return found == manifest.counters.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Retention::Retention(const Io& io, std::string directory, const CheckpointConfig& config, Holds holds)
    : io_(io),
      directory_(std::move(directory)),
      keep_(std::max(kLeastKept, config.keep)),
      keep_every_(config.keep_every),
      holds_(holds) {}

int64_t Retention::commit(const std::string& staged, const Manifest& manifest, const RunLock& lock) {
  const uint64_t tensors = tensors_digest(manifest.tensors);
  uint64_t text_digest = 0;
  try {
    require_whole(manifest);
    run_ = manifest.run;
    if (of_another_run(manifest.step))
      throw CheckpointError(text(directory_, "/", step_name(manifest.step), " belongs to another run: it is left; move it away"));
    if (already_there(manifest)) return discard(staged), 0;
    if (last_step_ >= 0 && last_step_ < manifest.step && tensors == last_tensors_ && may_not_be_equal(manifest))
      throw CheckpointError(text("step ", manifest.step, " is not saved: no tensor has changed since step ", last_step_));
    text_digest = write_manifest_file(io_, staged, write_manifest(manifest));
    if (holds_ == Holds::all) verify_names(io_, staged, manifest);
    if (before_commit_) before_commit_();
    lock.check();
    forget(manifest.step);
    commit_step(io_, directory_, staged, manifest.step);
    // Who took the lock since the check may have swept the staged files while they were renamed.
    if (!lock.held())
      throw CheckpointError(text("the run's lock was lost while step ", manifest.step, " was committed: it may not be whole"));
  } catch (...) {
    discard(staged);
    throw;
  }
  valid_.insert(manifest.step);
  last_step_ = manifest.step;
  last_tensors_ = tensors;
  last_updates_ = updates_of(manifest);
  try {
    if (committed_) committed_(manifest, text_digest);
  } catch (const std::exception& error) {
    warnings_.push_back(text("the commit of step ", manifest.step, " is not recorded: ", error.what()));
  }
  if (command_) command_->start({manifest.step, manifest.save, directory_ + "/" + step_name(manifest.step)});
  retain(manifest.step, lock);
  return bytes_in(manifest);
}

void Retention::after_commit(const CheckpointConfig& config, const std::string& run_directory, bool anew) {
  const CommitCommand::Files files{.log = run_directory + "/checkpoint_command.log",
                                   .done = run_directory + "/checkpoint_command.done"};
  if (anew) std::filesystem::remove(files.done);
  command_.emplace(config.command, files, config.command_timeout);
}

void Retention::run_command_for(int64_t step, const std::string& save) {
  if (command_ && !command_->has_done(step, save)) command_->start({step, save, directory_ + "/" + step_name(step)});
}

std::vector<std::string> Retention::take_warnings() {
  std::vector<std::string> warnings = std::exchange(warnings_, {});
  {
    const std::lock_guard lock(mutex_);
    for (std::string& found : found_elsewhere_) warnings.push_back(std::move(found));
    found_elsewhere_.clear();
  }
  if (command_)
    for (std::string& warning : command_->take_warnings()) warnings.push_back(std::move(warning));
  return warnings;
}

void Retention::follows(const Manifest& restored) {
  last_step_ = restored.step;
  last_tensors_ = tensors_digest(restored.tensors);
  last_updates_ = updates_of(restored);
}

// True if an update has happened, so that equal tensors would be an error. Steps without one leave
// them as they were.
bool Retention::may_not_be_equal(const Manifest& manifest) const {
  const std::optional<int64_t> updates = updates_of(manifest);
  return !updates || updates != last_updates_;
}

bool Retention::already_there(const Manifest& manifest) {
  // A directory that holds only some files may stem from another save.
  if (holds_ == Holds::some || !path_exists(io_, directory_ + "/" + step_name(manifest.step))) return false;
  try {
    const Manifest there = load_step(io_, directory_, manifest.step);
    return state_digest(there.tensors, there.counters) == state_digest(manifest.tensors, manifest.counters) &&
           valid(manifest.step, Unread::does_not_count);
  } catch (const CheckpointError&) {
    return false;  // damaged: replace it
  }
}

void Retention::doubt(int64_t step) {
  const std::lock_guard lock(mutex_);
  doubts_.insert(step);
}

void Retention::doubt(int64_t step, const std::string& problem) {
  doubt(step);
  const std::lock_guard lock(mutex_);
  found_elsewhere_.push_back(damaged_since(step, problem));
}

std::string damaged_since(int64_t step, const std::string& problem) {
  return text("the checkpoint of step ", step, " has been damaged since it was saved: ", problem, ". Another is kept in its place");
}

// Takes back what the lineage says of a step that this process replaces or deletes.
void Retention::forget(int64_t step) {
  const std::lock_guard lock(mutex_);
  trusted_.erase(step);
}

bool Retention::expects(int64_t step, uint64_t manifest) const {
  const std::lock_guard lock(mutex_);
  const auto known = trusted_.find(step);
  return known == trusted_.end() || known->second == manifest;
}

// Foreign checkpoints are neither counted nor deleted.
bool Retention::of_another_run(int64_t step) const {
  if (valid_.contains(step) || run_.empty() || !path_exists(io_, directory_ + "/" + step_name(step))) return false;
  try {
    return load_step(io_, directory_, step).run != run_;
  } catch (const CheckpointError&) {
    return false;  // damaged
  }
}

// The digest that the manifest of a step should have, if the lineage knows it and nobody doubts the step.
std::optional<uint64_t> Retention::known(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (doubts_.erase(step) > 0) valid_.erase(step), trusted_.erase(step);
  const auto found = trusted_.find(step);
  return found == trusted_.end() ? std::nullopt : std::optional(found->second);
}

bool Retention::valid(int64_t step, Unread unread) {
  const std::optional<uint64_t> expected = known(step);
  if (valid_.contains(step)) return true;
  const std::string path = directory_ + "/" + step_name(step);
  if (expected && unread == Unread::counts && path_exists(io_, path + "/" + kManifestName)) return true;
  try {
    const std::string content = manifest_text(io_, path);
    const Manifest manifest = require_step(parse_manifest_of(path, content), path, step);
    if (!run_.empty() && manifest.run != run_) return false;
    if (expected == digest(content))
      verify_sizes(io_, path, manifest);
    else if (holds_ == Holds::all)
      verify_files(io_, path, manifest);
    else
      verify_part(io_, path, part_in(io_, path, manifest));
  } catch (const CheckpointError&) {
    return false;
  }
  valid_.insert(step);
  return true;
}

void Retention::discard(const std::string& staged) {
  try {
    remove_directory(io_, staged, kManifestName);
  } catch (const CheckpointError& error) {
    warnings_.push_back(text("cannot remove what a failed save left (the next start will): ", error.what()));
  }
}

void Retention::retain(int64_t just_saved, const RunLock& lock) {
  try {
    const std::vector<int64_t> steps = steps_in(io_, directory_);
    int64_t kept = 0;
    for (size_t i = steps.size(); i-- > 0;) {
      const bool forever = keep_every_ > 0 && steps[i] % keep_every_ == 0;
      if (kept < keep_) {
        kept += valid(steps[i], kept < kLeastKept ? Unread::does_not_count : Unread::counts);
      } else if (steps[i] != just_saved && !forever && !(command_ && command_->needs(steps[i])) && !of_another_run(steps[i])) {
        lock.check();
        valid_.erase(steps[i]);
        forget(steps[i]);
        delete_step(io_, directory_, steps[i]);
      }
    }
  } catch (const CheckpointError& error) {
    warnings_.push_back(text("cannot delete an old checkpoint: ", error.what()));
  }
}

}  // namespace trireme
