// Reading half of Checkpoints: finds checkpoints and fills a state from one.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/text_stream.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/problem.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/save_summary.h"
#include "parallel/host_collectives.h"

namespace trireme {
namespace {

bool same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// Parent of a checkpoint's directory.
std::string holder_of(const std::string& checkpoint) {
  return std::filesystem::absolute(checkpoint + "/.").parent_path().parent_path();
}

// Broadcasts the steps of rank 0.
std::vector<int64_t> agreed(const Comm& ranks, const std::vector<int64_t>& steps) {
  if (ranks.size() == 1) return steps;
  std::string words;
  for (const int64_t step : steps) words += std::to_string(step) + " ";
  TextReader in(broadcast(ranks, words));
  return {std::istream_iterator<int64_t>(in), {}};
}

// The text of a manifest whose files are there, or the damage.
Outcome look_at(const Io& io, const std::string& directory) {
  Outcome found;
  try {
    found.words = manifest_text(io, directory);
    verify_names(io, directory, parse_manifest_of(directory, found.words));
  } catch (const DamagedCheckpoint& damage) {
    found.problem = damage.what();
  } catch (const CheckpointError&) {
    // Another version: each rank finds that, too.
  }
  return found;
}

// Names of the tensors of which any rank holds a part; none for one rank. Each crosses the network once to each rank.
std::set<std::string> names_on(const Comm& ranks, const std::vector<TensorSlice>& slices) {
  std::set<std::string> names;
  if (ranks.size() == 1) return names;
  const auto add = [&names](const std::string& lines) {
    TextReader in(lines);
    for (std::string name; std::getline(in, name);) names.insert(name);
  };
  const auto lines_of = [&names] {
    std::string lines;
    for (const std::string& name : names) (lines += name) += '\n';
    return lines;
  };
  for (const TensorSlice& slice : slices) names.insert(slice.name);
  const Outcome all = fold(ranks, {.words = lines_of()}, [&](const std::string&, const std::string& theirs) {
    add(theirs);
    return lines_of();
  });
  const Outcome every = broadcast(ranks, all);
  if (every.failed()) throw Error(every.problem);
  add(every.words);
  return names;
}

// Those of both lists, which are sorted by name, that have equal names and shapes.
std::array<std::vector<TensorEntry>, 2> comparable(const std::vector<TensorEntry>& a, const std::vector<TensorEntry>& b) {
  std::array<std::vector<TensorEntry>, 2> both;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (a[i].name == b[k].name && a[i].shape == b[k].shape) both[0].push_back(a[i]), both[1].push_back(b[k]);
    const bool advance_a = a[i].name <= b[k].name, advance_b = b[k].name <= a[i].name;
    i += advance_a, k += advance_b;
  }
  return both;
}

}  // namespace

// Steps of both tiers in ascending order; for equal steps memory comes last, since it is read
// first.
std::vector<Checkpoints::Found> Checkpoints::find_steps() const {
  std::vector<Found> found;
  for (const int64_t step : agreed(ranks_, steps_in(io_, directory_))) found.push_back({directory_, step, {}});
  for (MemoryTier::Step& step : memory_->find()) found.push_back({memory_->directory(), step.step, std::move(step)});
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step < b.step; });
  return found;
}

std::optional<int64_t> Checkpoints::restore(CheckpointState& state) {
  const std::vector<Found> steps = find_steps();
  // A machine's loss before the first commit to disk: no file was read, and no more can be lost.
  const bool all_lost = std::ranges::all_of(steps, [](const Found& f) { return f.in_memory && !f.in_memory->problem.empty(); });
  if (all_lost) {  // also if there are none
    require_not_missing();
    for (const Found& found : steps)
      warnings_.push_back(text(found.directory, "/", step_name(found.step), " is lost: ", found.in_memory->problem));
    memory_->go_on_from(0);
    return std::nullopt;
  }
  if (lineage_ && lineage_->last().step > steps.back().step)
    warnings_.push_back(text(lineage_path(run_directory_), " knows a commit of step ", lineage_->last().step,
                             ", which is missing: step ", steps.back().step, " is the newest there is"));
  return restore_newest(steps, directory_, state);
}

int64_t Checkpoints::restore_from(const std::string& directory, CheckpointState& state) {
  const bool exactly = path_exists(io_, directory + "/" + kManifestName);
  const std::string holder = exactly ? holder_of(directory) : checkpoints_of(directory);
  const std::vector<Found> ours = find_steps();
  if (!same_directory(holder, directory_)) {
    if (!ours.empty())
      throw ConfigError(text(directory_, " already holds step ", ours.back().step,
                             ": continue it with --resume auto, or choose another ", "train.name to start from ", directory));
  } else if (exactly && !ours.empty() && ours.back().step > load_manifest(io_, directory).step) {
    throw ConfigError(text(directory_, " holds step ", ours.back().step, ", newer than ", directory,
                           ": choose another train.name to branch off, or move the newer ones away"));
  }
  if (exactly)
    return restore_together(
        directory, [&] { return shared_manifest(directory); }, state);
  std::vector<Found> steps;
  for (const int64_t step : agreed(ranks_, steps_in(io_, holder))) steps.push_back({holder, step, {}});
  return restore_newest(steps, holder, state);
}

int64_t Checkpoints::restore_newest(const std::vector<Found>& steps, const std::string& searched, CheckpointState& state) {
  std::string problems;
  for (size_t i = steps.size(); i-- > 0;) {
    const std::string path = steps[i].directory + "/" + step_name(steps[i].step);
    if (const std::string why = searched == directory_ ? foreign(steps[i]) : ""; !why.empty()) {
      problems += "\n" + why;
      warnings_.push_back(why);
      continue;
    }
    try {
      const int64_t step = restore_found(steps[i], state);
      if (searched == directory_) memory_->go_on_from(step);
      return step;
    } catch (const DamagedCheckpoint& damage) {
      problems += text("\n", path, " is damaged: ", damage.what());
      warnings_.push_back(text(path, " is damaged, skipping it: ", damage.what()));
      if (searched == directory_ && !steps[i].in_memory) retention_.doubt(steps[i].step);
    }
  }
  throw CheckpointError(text("no usable checkpoint in ", searched, problems));
}

// With several nodes, a node whose files in memory are damaged gets copies of other nodes', as long
// as there are any.
int64_t Checkpoints::restore_found(const Found& found, CheckpointState& state) {
  const std::string path = found.directory + "/" + step_name(found.step);
  if (!found.in_memory)
    return restore_together(
        path, [&] { return require_step(shared_manifest(path), path, found.step); }, state);
  std::optional<MemoryTier::Step> now = found.in_memory;
  for (;;) {
    const auto load = [&] {
      if (!now->problem.empty()) throw DamagedCheckpoint(now->problem);
      const auto wanted = [&](const Manifest& manifest) {
        if (state.accept) state.accept(manifest);
        return state.slices;
      };
      copies_are_lost_ |= memory_->bring(*now, wanted, state.layout);
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

// Reads a manifest on rank 0, which also looks for its files, for all ranks. The others open those that they read.
Manifest Checkpoints::shared_manifest(const std::string& directory) const {
  const Outcome found = broadcast(ranks_, ranks_.rank() == 0 ? look_at(io_, directory) : Outcome{});
  if (found.failed()) throw DamagedCheckpoint(found.problem);
  return parse_manifest_of(directory, found.words);
}

// Restores each rank's own slices. Damage for one rank counts for all.
int64_t Checkpoints::restore_together(const std::string& directory, const std::function<Manifest()>& load, CheckpointState& state) {
  std::set<std::string> elsewhere = names_on(ranks_, state.slices);
  int64_t step = 0;
  std::string damage, save;
  try {
    const Manifest manifest = load();
    if (state.accept) state.accept(manifest);
    for (const TensorEntry& tensor : manifest.tensors)
      if (state.may_be_left && state.may_be_left(tensor.name)) elsewhere.insert(tensor.name);
    read_slices(io_, directory, manifest, state.slices,
                {.tensors = elsewhere,
                 .reader = ranks_.size() == 1 ? Reader::alone : Reader::one_of_many,
                 .rank = reading_rank(ranks_, manifest, state.layout)});
    state.counters = manifest.counters;
    state.config = manifest.config;
    restored_run_ = manifest.run;
    restored_records_ = manifest.records;
    step = manifest.step, save = manifest.save;
    restored_ = manifest.tensors;
    last_on_disk_ = same_directory(holder_of(directory), directory_) ? step : -1;
    retention_.follows(manifest);
    if (memory_->retention() != nullptr) memory_->retention()->follows(manifest);
  } catch (const DamagedCheckpoint& error) {
    damage = error.what();
  }
  damage = first_problem(ranks_, damage);
  if (!damage.empty()) throw DamagedCheckpoint(damage);
  const bool renamed = !same_directory(directory, directory_ + "/" + step_name(step));
  if (last_on_disk_ >= 0 && !renamed) retention_.run_command_for(step, save);
  const bool own = last_on_disk_ >= 0 || (memory_->exists() && same_directory(holder_of(directory), memory_->directory()));
  if (own && run_id_.empty() && from_hex(restored_run_)) adopt_id(restored_run_);
  return step;
}

void Checkpoints::confirm(const std::vector<TensorSlice>& slices) const {
  Manifest own;
  own.tensors = describe(slices);
  const Outcome all = merged(ranks_, {.words = text_of(SaveSummary(own))});
  std::string problem = all.problem;
  if (ranks_.rank() == 0 && !all.failed()) {
    const auto [here, there] = comparable(summary_of(all.words).entries(), restored_);
    if (tensors_digest(here) != tensors_digest(there))
      problem = text("the restored tensors have digest ", hex(tensors_digest(here)), ", those of their checkpoint ",
                     hex(tensors_digest(there)), ": suspected memory fault or bug; nothing on disk has changed");
  }
  problem = broadcast(ranks_, problem);
  if (!problem.empty()) throw CheckpointError(problem);
}

}  // namespace trireme
