#include "checkpoint/checkpoints.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/replace_file.h"
#include "base/text_stream.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/save_summary.h"
#include "kernels/device.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

// Lowers this thread's priority, so that a save takes only the processor time that steps leave.
void work_behind_the_steps() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10); }

std::string words_of(const SaveResult& result) {
  return text(result.bytes, ' ', result.seconds, ' ', result.write_seconds, ' ', result.digest);
}

SaveResult result_of(const std::string& words) {
  SaveResult result;
  TextReader(words) >> result.bytes >> result.seconds >> result.write_seconds >> result.digest;
  return result;
}

template <class Result>
bool running(const std::future<Result>& work) {
  return work.valid() && work.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

}  // namespace

std::string state_digest(const CheckpointState& state) { return state_digest(describe(state.slices), state.counters); }

Checkpoints::Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume, Io io, const Comm& ranks,
                         const Nodes& nodes)
    : config_(config),
      directory_(run_directory + "/checkpoints"),
      io_(std::move(io)),
      ranks_(ranks),
      retention_(io_, directory_, config),
      run_directory_(run_directory) {
  if (ranks.rank() == 0) {
    run_lock_.emplace(run_directory, kLockPatience);
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) throw unwritable(directory_, error.value());
    sweep(io_, directory_, warnings_);
    sync_directory(io_, directory_);  // a process that was killed may have committed what is found without this
    if (const std::string problem = sync_parents(io_, directory_); !problem.empty()) warnings_.push_back(problem);
    if (const std::vector<int64_t> steps = steps_in(io_, directory_); resume == Resume::never && !steps.empty())
      throw ConfigError(text(directory_, " holds ", steps.size(), " checkpoints, the newest of step ", steps.back(),
                             ": continue with --resume auto, or choose another train.name to start anew"));
    open_records(resume);
    if (!config.command.empty()) retention_.after_commit(config, run_directory, resume == Resume::never);
  }
  memory_.emplace(io_, run_directory, config.memory_every > 0, nodes, ranks_);
  if (resume == Resume::never && !memory_->find().empty())
    throw ConfigError(text(directory_, " has checkpoints in ", memory_->directory(),
                           ": continue with --resume auto, or choose another train.name"));
}

void Checkpoints::begin(int64_t step, CheckpointState state, std::function<void()> ready, Tier tier) {
  require(tier == Tier::disk || memory_->exists(), text("a save to memory needs checkpoint.memory_every"));
  require(!saving_, text("a save began before the previous one ended"));
  if (tier == Tier::memory) copies_are_lost_ = false;
  if (ranks_.rank() == 0) run_id();
  const std::string id = broadcast(ranks_, ranks_.rank() == 0 ? random_id() : "");
  saving_.emplace(Saving{.step = step,
                         .tier = tier,
                         .state = std::move(state),
                         .id = id,
                         .staged = (tier == Tier::disk ? directory_ : memory_->directory()) + "/" + staging_name(step, id),
                         .start = Clock::now(),
                         .part = {},
                         .merged = {},
                         .commit = {},
                         .result = {.step = step, .tier = tier, .digest = {}},
                         .failure = nullptr});
  const int threads =
      config_.async ? static_cast<int>(config_.writers > 0 ? config_.writers : std::min(8, 3 * threads_here())) : threads_here();
  saving_->part = std::async(std::launch::async, [this, threads, ready = std::move(ready)] {
    if (config_.async) work_behind_the_steps();
    use_threads_here(threads);
    return write_part(*saving_, ready);
  });
}

bool Checkpoints::busy() const {
  return saving_ && (running(saving_->part) || running(saving_->merged) || running(saving_->commit));
}

std::optional<SaveResult> Checkpoints::advance() {
  if (!saving_) return std::nullopt;
  switch (saving_->phase) {
    case Phase::writing:
      bring_together(*saving_);
      break;
    case Phase::merging:
      hand_out(*saving_);
      break;
    case Phase::committing:
      return conclude(*saving_);
  }
  return std::nullopt;
}

SaveResult Checkpoints::end() {
  require(saving_.has_value(), text("no save is in progress"));
  for (;;)
    if (const std::optional<SaveResult> result = advance()) return *result;
}

// Writes this rank's file, synced and re-read, and returns its SaveSummary. Runs on a thread of its own.
std::string Checkpoints::write_part(const Saving& saving, const std::function<void()>& ready) const {
  std::string words;
  std::exception_ptr failure;
  try {
    if (ready) ready();
    if (run_lock_) run_lock_->check();
    make_directory(io_, saving.staged);
    const std::vector<TensorSlice>& slices = saving.state.slices;
    const Manifest part = write_rank_file(io_, saving.staged, static_cast<int>(ranks_.rank()), slices, saving.state.finite);
    SaveSummary summary(part);
    summary.seconds = seconds_since(saving.start);
    summary.layout = layout_share(ranks_.rank(), slices);
    summary.damages = doubts_to_send();
    verify_part(io_, saving.staged, part);
    words = text_of(summary);
  } catch (...) {
    failure = std::current_exception();
  }
  // Runs in every case: other ranks wait for it.
  if (saving.tier == Tier::memory) memory_->exchange(saving.staged, words);
  if (failure) std::rethrow_exception(failure);
  return words;
}

// Merges the parts of all ranks; rank 0's thread makes the manifest.
void Checkpoints::bring_together(Saving& saving) {
  const bool alone = saving.tier == Tier::disk;  // rank 0 commits for all ranks
  saving.phase = alone ? Phase::committing : Phase::merging;
  Outcome own;
  try {
    own.words = saving.part.get();
  } catch (const std::exception& error) {
    saving.failure = std::current_exception();
    own.problem = error.what();
  }
  const Outcome all = merged(ranks_, own);
  if (ranks_.rank() > 0) return;
  const auto behind_the_steps = [this, &saving, all](auto work) {
    if (config_.async) work_behind_the_steps();
    use_threads_here(1);
    return work(manifest_of(saving, all));
  };
  if (alone)
    saving.commit = std::async(std::launch::async, [=, this, &saving] {
      try {
        behind_the_steps([&](const Manifest& manifest) {
          saving.result.bytes = retention_.commit(saving.staged, manifest, *run_lock_);
          saving.result.seconds = seconds_since(saving.start);
        });
      } catch (...) {
        retention_.discard(saving.staged);
        throw;
      }
    });
  else
    saving.merged = std::async(std::launch::async, [=, this] {
      return behind_the_steps([this](const Manifest& manifest) {
        run_lock_->check();
        return write_manifest(manifest);
      });
    });
}

// The manifest of what all ranks saved; throws if one of them failed.
Manifest Checkpoints::manifest_of(Saving& saving, const Outcome& all) {
  if (all.failed()) throw CheckpointError(all.problem);
  Manifest manifest{.run = run_id_,
                    .save = saving.id,
                    .step = saving.step,
                    .ranks = ranks_.size(),
                    .counters = saving.state.counters,
                    .config = saving.state.config,
                    .records = saving.state.records,
                    .files = {},
                    .tensors = {}};
  const SaveSummary summary = summary_of(all.words);
  try {
    summary.fill(manifest);
  } catch (const DamagedCheckpoint& error) {
    throw Error(text("the state cannot be saved: ", error.what()));
  }
  for (const SaveSummary::Damage& damage : summary.damages) retention_.doubt(damage.step, damage.problem);
  saving.result.write_seconds = summary.seconds;
  saving.result.digest = state_digest(manifest.tensors, manifest.counters);
  return manifest;
}

// Sends the manifest to one rank of each node, which commits its memory tier.
void Checkpoints::hand_out(Saving& saving) {
  saving.phase = Phase::committing;
  Outcome merged;
  try {
    if (saving.merged.valid()) merged.words = saving.merged.get();
  } catch (const std::exception& error) {
    if (!saving.failure) saving.failure = std::current_exception();
    merged.problem = error.what();
  }
  merged = broadcast(ranks_, merged);
  if (memory_->retention() == nullptr) return;
  saving.commit = std::async(std::launch::async, [this, &saving, merged] {
    if (config_.async) work_behind_the_steps();
    use_threads_here(1);
    if (merged.failed()) {
      memory_->retention()->discard(saving.staged);
      throw CheckpointError(merged.problem);
    }
    saving.result.bytes = memory_->retention()->commit(saving.staged, parse_manifest(merged.words), *memory_->lock());
    saving.result.seconds = seconds_since(saving.start);
  });
}

// Ends the save: all ranks learn its result.
SaveResult Checkpoints::conclude(Saving& saving) {
  Outcome mine;
  try {
    if (saving.commit.valid()) saving.commit.get();
  } catch (const std::exception& error) {
    if (!saving.failure) saving.failure = std::current_exception();
    mine.problem = error.what();
  }
  for (const Outcome& theirs : gather(ranks_, mine))
    if (!mine.failed()) mine = theirs;
  mine.words = words_of(saving.result);
  const Outcome all = broadcast(ranks_, mine);
  const Saving ended = std::move(saving);
  saving_.reset();
  if (ended.failure) std::rethrow_exception(ended.failure);
  if (all.failed()) throw CheckpointError(all.problem);
  drop_sent_doubts();
  SaveResult result = result_of(all.words);
  result.step = ended.step;
  result.tier = ended.tier;
  if (result.tier == Tier::disk) last_on_disk_ = result.step;
  return result;
}

void Checkpoints::abandon() {
  if (saving_ && saving_->part.valid()) saving_->part.wait();
  if (saving_ && saving_->merged.valid()) saving_->merged.wait();
  if (saving_ && saving_->commit.valid()) saving_->commit.wait();
  saving_.reset();
  retention_.before_commit({});
}

void Checkpoints::finish(const std::function<bool()>& hurry) {
  abandon();
  retention_.wait_for_command(hurry);
  if (memory_->exists()) {
    const std::vector<int64_t> in_memory = steps_in(io_, memory_->directory());
    const bool newer = !in_memory.empty() && in_memory.back() > last_on_disk_;
    if (largest(ranks_, newer) == 0) memory_->remove();
    gather(ranks_, "");  // before another process can take the lock
  }
  run_lock_.reset();
}

std::vector<std::string> Checkpoints::take_warnings() {
  std::vector<std::string> warnings = std::exchange(warnings_, {});
  if (saving_) return warnings;
  for (std::string& warning : retention_.take_warnings()) warnings.push_back(std::move(warning));
  for (std::string& warning : memory_->take_warnings()) warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace trireme
