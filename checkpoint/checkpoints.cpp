#include "checkpoint/checkpoints.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/shards.h"
#include "kernels/device.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

bool same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// The directory that holds a checkpoint's directory.
std::string holder_of(const std::string& checkpoint) {
  return std::filesystem::absolute(checkpoint + "/.").parent_path().parent_path();
}

// Of this thread: it takes of the processors what the steps leave.
void work_behind_the_steps() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10); }

// What a rank says that has failed.
std::string failed(const std::exception& error) { return "!" + std::string(error.what()); }
bool has_failed(const std::string& words) { return words.starts_with("!"); }

std::string words_of(const SaveResult& result) {
  return text(result.bytes, ' ', result.seconds, ' ', result.write_seconds, ' ', result.digest);
}

SaveResult result_of(const std::string& words) {
  SaveResult result;
  std::istringstream(words) >> result.bytes >> result.seconds >> result.write_seconds >> result.digest;
  return result;
}

template <class Result>
bool running(const std::future<Result>& work) {
  return work.valid() && work.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

// `manifest`, if all of its files are there.
Manifest whole_checkpoint(const Io& io, const std::string& directory, Manifest manifest) {
  verify_sizes(io, directory, manifest);
  return manifest;
}

// Rank 0's.
std::vector<int64_t> agreed(const Comm& ranks, const std::vector<int64_t>& steps) {
  if (ranks.size() == 1) return steps;
  std::string words;
  for (const int64_t step : steps) words += std::to_string(step) + " ";
  std::istringstream in(broadcast(ranks, words));
  return {std::istream_iterator<int64_t>(in), {}};
}

}  // namespace

std::string state_digest(const CheckpointState& state) { return state_digest(describe(state.shards), state.counters); }

Checkpoints::Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume, Io io, const Comm& ranks,
                         const Nodes& nodes)
    : config_(config),
      directory_(run_directory + "/checkpoints"),
      io_(std::move(io)),
      ranks_(ranks),
      archive_(io_, directory_, config),
      run_id_(random_id()) {
  if (ranks.rank() == 0) {
    lease_.emplace(run_directory);
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) throw ConfigError(text("cannot make ", directory_, ": ", error.message()));
    sweep(io_, directory_, warnings_);
    if (const std::vector<int64_t> steps = steps_in(directory_); resume == Resume::never && !steps.empty())
      throw ConfigError(text(directory_, " holds ", steps.size(), " checkpoints, the newest of step ", steps.back(),
                             ": continue with --resume auto, or choose another train.name to start anew"));
    if (!config.command.empty()) archive_.after_commit(config.command, run_directory);
  }
  memory_.emplace(io_, run_directory, config.memory_every > 0, nodes, ranks_);
  if (resume == Resume::never && !memory_->find().empty())
    throw ConfigError(text(directory_, " has checkpoints in ", memory_->directory(),
                           ": continue with --resume auto, or choose another train.name"));
}

// In both tiers, rising; of one step that in memory last, for it is read first.
std::vector<Checkpoints::Found> Checkpoints::find_steps() const {
  std::vector<Found> found;
  for (const int64_t step : agreed(ranks_, steps_in(directory_))) found.push_back({directory_, step, {}});
  for (MemoryTier::Step& step : memory_->find()) found.push_back({memory_->directory(), step.step, std::move(step)});
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step < b.step; });
  return found;
}

std::optional<int64_t> Checkpoints::restore(CheckpointState& state) {
  const std::vector<Found> steps = find_steps();
  if (steps.empty()) return std::nullopt;
  return restore_newest(steps, directory_, state);
}

int64_t Checkpoints::restore_from(const std::string& directory, CheckpointState& state) {
  const bool exactly = path_exists(directory + "/" + kManifestName);
  const std::string holder = exactly ? holder_of(directory) : checkpoints_of(directory);
  const std::vector<Found> ours = find_steps();
  if (!same_directory(holder, directory_)) {
    if (!ours.empty())
      throw ConfigError(text(directory_, " already holds step ", ours.back().step,
                             ": continue it with --resume auto, or choose another ", "train.name to start from ", directory));
  } else if (exactly && ours.back().step > load_manifest(io_, directory).step) {
    throw ConfigError(text(directory_, " holds step ", ours.back().step, ", newer than ", directory,
                           ": choose another train.name to branch off, or move the newer ones away"));
  }
  if (exactly)
    return restore_together(
        directory, [&] { return whole_checkpoint(io_, directory, load_manifest(io_, directory)); }, state);
  std::vector<Found> steps;
  for (const int64_t step : agreed(ranks_, steps_in(holder))) steps.push_back({holder, step, {}});
  return restore_newest(steps, holder, state);
}

int64_t Checkpoints::restore_newest(const std::vector<Found>& steps, const std::string& searched, CheckpointState& state) {
  std::string problems;
  for (size_t i = steps.size(); i-- > 0;) {
    const std::string path = steps[i].directory + "/" + step_name(steps[i].step);
    try {
      const int64_t step = restore_found(steps[i], state);
      if (searched == directory_) memory_->go_on_from(step);
      return step;
    } catch (const DamagedCheckpoint& damage) {
      problems += text("\n", path, " is damaged: ", damage.what());
      warnings_.push_back(text(path, " is damaged and passed over: ", damage.what()));
    }
  }
  throw CheckpointError(text("no usable checkpoint in ", searched, problems));
}

// Of several nodes, one that has damaged files in memory is brought others', as long as there are any.
int64_t Checkpoints::restore_found(const Found& found, CheckpointState& state) {
  const std::string path = found.directory + "/" + step_name(found.step);
  if (!found.in_memory)
    return restore_together(
        path, [&] { return whole_checkpoint(io_, path, load_step(io_, found.directory, found.step)); }, state);
  std::optional<MemoryTier::Step> now = found.in_memory;
  for (;;) {
    const auto load = [&] {
      if (!now->problem.empty()) throw DamagedCheckpoint(now->problem);
      copies_are_lost_ |= memory_->bring(*now, state.shards);
      return load_step(io_, found.directory, found.step);
    };
    try {
      return restore_together(path, load, state);
    } catch (const DamagedCheckpoint&) {
      if (!now->problem.empty() || !memory_->drop_damaged(*now)) throw;
    }
    for (MemoryTier::Step& step : memory_->find())
      if (step.step == now->step && step.save == now->save) now = std::move(step);
  }
}

// Each rank its own shards. A checkpoint that is damaged for one rank is damaged for all.
int64_t Checkpoints::restore_together(const std::string& directory, const std::function<Manifest()>& load, CheckpointState& state) {
  std::string names;
  if (ranks_.size() > 1)
    for (const NamedShard& shard : state.shards) names += shard.name + "\n";
  std::string all_names;
  for (const std::string& theirs : gather(ranks_, names)) all_names += theirs;
  std::set<std::string> elsewhere;
  std::istringstream lines(broadcast(ranks_, all_names));
  for (std::string name; std::getline(lines, name);) elsewhere.insert(name);

  int64_t step = 0;
  std::string damage;
  try {
    const Manifest manifest = load();
    read_shards(io_, directory, manifest, state.shards, elsewhere, ranks_.size() == 1 ? Reader::alone : Reader::one_of_many);
    state.counters = manifest.counters;
    state.config = manifest.config;
    run_id_ = manifest.run;
    step = manifest.step;
    restored_ = tensors_digest(manifest.tensors);
    last_on_disk_ = same_directory(holder_of(directory), directory_) ? step : -1;
    archive_.follows(manifest);
    if (memory_->archive() != nullptr) memory_->archive()->follows(manifest);
  } catch (const DamagedCheckpoint& error) {
    damage = error.what();
  }
  damage = first_problem(ranks_, damage);
  if (!damage.empty()) throw DamagedCheckpoint(damage);
  return step;
}

void Checkpoints::confirm(const std::vector<NamedShard>& shards) const {
  Manifest own;
  own.tensors = describe(shards);
  std::string problem;
  if (const std::vector<std::string> parts = gather(ranks_, ranks_.size() > 1 ? write_manifest(own) : ""); ranks_.rank() == 0) {
    for (size_t r = 1; r < parts.size(); ++r) add_part(own, parse_part(parts[r]));
    if (const uint64_t there = tensors_digest(own.tensors); there != restored_)
      problem = text("the tensors that were restored have digest ", hex(there), ", those of their checkpoint ", hex(restored_),
                     ": memory or the program is at fault; nothing is changed on disk");
  }
  problem = broadcast(ranks_, problem);
  if (!problem.empty()) throw CheckpointError(problem);
}

void Checkpoints::begin(int64_t step, CheckpointState state, std::function<void()> ready, Tier tier) {
  require(tier == Tier::disk || memory_->exists(), text("a save to memory without checkpoint.memory_every"));
  require(!saving_, text("a save begins before the last one has ended"));
  if (tier == Tier::memory) copies_are_lost_ = false;
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
      return tell(*saving_);
  }
  return std::nullopt;
}

SaveResult Checkpoints::end() {
  require(saving_.has_value(), text("there is no save to end"));
  for (;;)
    if (const std::optional<SaveResult> result = advance()) return *result;
}

// On a thread of its own: this rank's file, on disk and re-read.
Checkpoints::Part Checkpoints::write_part(const Saving& saving, const std::function<void()>& ready) const {
  Part part;
  std::exception_ptr failure;
  try {
    if (ready) ready();
    if (lease_) lease_->check();
    make_directory(io_, saving.staged);
    part.manifest = write_shards(io_, saving.staged, static_cast<int>(ranks_.rank()), saving.state.shards, saving.state.finite);
    part.seconds = seconds_since(saving.start);
    verify_part(io_, saving.staged, part.manifest);
    if (ranks_.size() > 1) part.text = write_manifest(part.manifest);
  } catch (...) {
    failure = std::current_exception();
  }
  // Other ranks wait for it, whatever has happened here.
  if (saving.tier == Tier::memory) memory_->exchange(saving.staged, failure ? "" : part.text);
  if (failure) std::rethrow_exception(failure);
  if (ranks_.size() > 1) part.text = text(part.seconds, '\n', part.text);
  return part;
}

// Rank 0's thread goes on with what all have written.
void Checkpoints::bring_together(Saving& saving) {
  const bool alone = saving.tier == Tier::disk;  // rank 0 commits for all
  saving.phase = alone ? Phase::committing : Phase::merging;
  Part own;
  try {
    own = saving.part.get();
  } catch (const std::exception& error) {
    saving.failure = std::current_exception();
    own.text = failed(error);
  }
  std::vector<std::string> parts = gather(ranks_, own.text);
  if (ranks_.rank() > 0) return;
  const auto behind_the_steps = [this, &saving, own = std::move(own), parts = std::move(parts)](auto work) {
    if (config_.async) work_behind_the_steps();
    use_threads_here(1);
    return work(merge(saving, own, parts));
  };
  if (alone)
    saving.commit = std::async(std::launch::async, [=, this, &saving] {
      try {
        behind_the_steps([&](const Manifest& manifest) {
          saving.result.bytes = archive_.commit(saving.staged, manifest, *lease_);
          saving.result.seconds = seconds_since(saving.start);
        });
      } catch (...) {
        archive_.discard(saving.staged);
        throw;
      }
    });
  else
    saving.merged = std::async(std::launch::async, [=, this] {
      return behind_the_steps([this](const Manifest& manifest) {
        lease_->check();
        return write_manifest(manifest);
      });
    });
}

// What all ranks have written, if they have.
Manifest Checkpoints::merge(Saving& saving, const Part& own, const std::vector<std::string>& parts) const {
  Manifest manifest{.run = run_id_,
                    .save = saving.id,
                    .step = saving.step,
                    .counters = saving.state.counters,
                    .config = saving.state.config,
                    .files = {},
                    .tensors = {}};
  std::string problems;
  for (const std::string& part : parts)
    if (has_failed(part)) problems += (problems.empty() ? "" : "\n") + part.substr(1);
  if (!problems.empty()) throw CheckpointError(problems);
  add_part(manifest, own.manifest);
  saving.result.write_seconds = own.seconds;
  for (size_t r = 1; r < parts.size(); ++r) {
    saving.result.write_seconds = std::max(saving.result.write_seconds, std::stod(parts[r]));
    add_part(manifest, parse_part(parts[r].substr(parts[r].find('\n') + 1)));
  }
  saving.result.digest = state_digest(manifest.tensors, manifest.counters);
  return manifest;
}

// In memory one rank of each node commits what is there.
void Checkpoints::hand_out(Saving& saving) {
  saving.phase = Phase::committing;
  std::string words;
  try {
    if (saving.merged.valid()) words = saving.merged.get();
  } catch (const std::exception& error) {
    if (!saving.failure) saving.failure = std::current_exception();
    words = failed(error);
  }
  words = broadcast(ranks_, words);
  if (memory_->archive() == nullptr) return;
  saving.commit = std::async(std::launch::async, [this, &saving, words] {
    if (config_.async) work_behind_the_steps();
    use_threads_here(1);
    if (has_failed(words)) {
      memory_->archive()->discard(saving.staged);
      throw CheckpointError(words.substr(1));
    }
    saving.result.bytes = memory_->archive()->commit(saving.staged, parse_manifest(words), *memory_->lease());
    saving.result.seconds = seconds_since(saving.start);
  });
}

// All ranks learn how the save ended, and it has.
SaveResult Checkpoints::tell(Saving& saving) {
  std::string words;
  try {
    if (saving.commit.valid()) saving.commit.get();
  } catch (const std::exception& error) {
    if (!saving.failure) saving.failure = std::current_exception();
    words = failed(error);
  }
  for (const std::string& theirs : gather(ranks_, words))
    if (words.empty()) words = theirs;
  words = broadcast(ranks_, words.empty() ? words_of(saving.result) : words);
  const Saving ended = std::move(saving);
  saving_.reset();
  if (ended.failure) std::rethrow_exception(ended.failure);
  if (has_failed(words)) throw CheckpointError(words.substr(1));
  SaveResult result = result_of(words);
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
  archive_.before_commit({});
}

void Checkpoints::finish() {
  abandon();
  archive_.wait_for_command();
  if (memory_->exists()) {
    const std::vector<int64_t> in_memory = steps_in(memory_->directory());
    const bool newer = !in_memory.empty() && in_memory.back() > last_on_disk_;
    if (largest(ranks_, newer) == 0) memory_->remove();
    gather(ranks_, "");  // before the lease is another's
  }
  lease_.reset();
}

std::vector<std::string> Checkpoints::take_warnings() {
  std::vector<std::string> warnings = std::exchange(warnings_, {});
  if (saving_) return warnings;
  for (std::string& warning : archive_.take_warnings()) warnings.push_back(std::move(warning));
  for (std::string& warning : memory_->take_warnings()) warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace trireme
