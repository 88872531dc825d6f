#include "checkpoint/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/shards.h"
#include "checkpoint/store.h"
#include "parallel/agree.h"

namespace trireme {

namespace {

std::string fresh_id() {
  std::random_device chance;
  return hex(uint64_t{chance()} << 32 | chance());
}

bool same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// The directory that holds a checkpoint's directory.
std::string holder_of(const std::string& checkpoint) {
  return std::filesystem::absolute(checkpoint + "/.").parent_path().parent_path();
}

void write_manifest_file(const Io& io, const std::string& directory, const Manifest& manifest) {
  const std::string path = directory + "/" + kManifestName, temporary = path + kTemporary;
  const std::string content = write_manifest(manifest);
  IoFile file = IoFile::create(io, temporary);
  file.write_at(content.data(), static_cast<int64_t>(content.size()), 0);
  file.sync();
  file.close();
  rename_path(io, temporary, path);
  sync_directory(io, directory);
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

Checkpoints::Checkpoints(const CheckpointConfig& config, std::string run_directory, Resume resume, Io io, const Comm& ranks)
    : every_(config.every),
      keep_(std::max<int64_t>(2, config.keep)),
      directory_(run_directory + "/checkpoints"),
      io_(std::move(io)),
      ranks_(ranks),
      run_id_(fresh_id()) {
  if (ranks.rank() > 0) return;
  lease_.emplace(run_directory);
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) throw ConfigError(text("cannot make ", directory_, ": ", error.message()));
  sweep(io_, directory_, warnings_);
  if (const std::vector<int64_t> steps = steps_in(directory_); resume == Resume::never && !steps.empty())
    throw ConfigError(text(directory_, " holds ", steps.size(), " checkpoints, the newest of step ", steps.back(),
                           ": continue with --resume auto, or choose another train.name to start anew"));
}

std::optional<int64_t> Checkpoints::restore(CheckpointState& state) {
  const std::vector<int64_t> steps = agreed(ranks_, steps_in(directory_));
  if (steps.empty()) return std::nullopt;
  return restore_newest(directory_, steps, state);
}

int64_t Checkpoints::restore_from(const std::string& directory, CheckpointState& state) {
  const bool exactly = path_exists(directory + "/" + kManifestName);
  const std::string holder = exactly ? holder_of(directory) : checkpoints_of(directory);
  const std::vector<int64_t> ours = agreed(ranks_, steps_in(directory_));
  if (!same_directory(holder, directory_)) {
    if (!ours.empty())
      throw ConfigError(text(directory_, " already holds step ", ours.back(),
                             ": continue it with --resume auto, or choose another ", "train.name to start from ", directory));
  } else if (exactly && ours.back() > load_manifest(io_, directory).step) {
    throw ConfigError(text(directory_, " holds step ", ours.back(), ", newer than ", directory,
                           ": choose another train.name to branch off, or move the newer ones away"));
  }
  if (exactly)
    return restore_together(
        directory, [&] { return load_manifest(io_, directory); }, state);
  return restore_newest(holder, agreed(ranks_, steps_in(holder)), state);
}

int64_t Checkpoints::restore_newest(const std::string& directory, const std::vector<int64_t>& steps, CheckpointState& state) {
  std::string problems;
  for (size_t i = steps.size(); i-- > 0;) {
    const std::string path = directory + "/" + step_name(steps[i]);
    try {
      return restore_together(
          path, [&] { return load_step(io_, directory, steps[i]); }, state);
    } catch (const DamagedCheckpoint& damage) {
      problems += text("\n", path, " is damaged: ", damage.what());
      warnings_.push_back(text(path, " is damaged and passed over: ", damage.what()));
    }
  }
  throw CheckpointError(text("no usable checkpoint in ", directory, problems));
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

  std::string damage;
  try {
    const Manifest manifest = load();
    verify_sizes(io_, directory, manifest);
    read_shards(io_, directory, manifest, state.shards, elsewhere);
    state.counters = manifest.counters;
    state.config = manifest.config;
    run_id_ = manifest.run;
    last_step_ = manifest.step;
    last_tensors_ = tensors_digest(manifest.tensors);
  } catch (const DamagedCheckpoint& error) {
    damage = error.what();
  }
  for (const std::string& theirs : gather(ranks_, damage))
    if (damage.empty()) damage = theirs;
  damage = broadcast(ranks_, damage);
  if (!damage.empty()) throw DamagedCheckpoint(damage);
  return last_step_;
}

SaveResult Checkpoints::save(int64_t step, const CheckpointState& state) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<TensorEntry> tensors = describe(state.shards);
  Manifest own;
  own.tensors = tensors;
  const std::string mine = ranks_.size() > 1 ? write_manifest(own) : "";
  const std::vector<std::string> parts = gather(ranks_, mine);
  if (ranks_.rank() > 0) {
    follow_save(state, own);
    return {.step = step, .digest = ""};
  }
  bool told = false;  // the others, where to write
  SaveResult result;
  try {
    Manifest manifest{.run = run_id_,
                      .save = fresh_id(),
                      .step = step,
                      .counters = state.counters,
                      .config = state.config,
                      .files = {},
                      .tensors = tensors};
    for (size_t r = 1; r < parts.size(); ++r) add_part(manifest, parse_part(parts[r]));
    result = lead_save(state, own, manifest, told);
  } catch (const std::exception& error) {
    if (!told) broadcast(ranks_, "");
    broadcast(ranks_, error.what());
    throw;
  }
  if (!told) broadcast(ranks_, "");
  broadcast(ranks_, "");
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

SaveResult Checkpoints::lead_save(const CheckpointState& state, const Manifest& own, Manifest& manifest, bool& told) {
  const int64_t step = manifest.step;
  lease_->check();
  SaveResult result{.step = step, .digest = state_digest(manifest.tensors, manifest.counters)};
  if (already_saved(step, result.digest)) return result;
  const uint64_t tensors = tensors_digest(manifest.tensors);
  if (last_step_ >= 0 && last_step_ < step && tensors == last_tensors_)
    throw CheckpointError(text("step ", step, " is not saved: no tensor has changed since step ", last_step_));
  const std::string staged = directory_ + "/" + staging_name(step, manifest.save);
  try {
    result.bytes = stage(staged, state, own, manifest, told);
    lease_->check();
    commit_step(io_, directory_, staged, step);
  } catch (...) {
    discard(staged);
    throw;
  }
  valid_.insert(step);
  last_step_ = step;
  last_tensors_ = tensors;
  retain(step);
  return result;
}

// What the other ranks do while rank 0 saves: write where it says, and hear how it ended.
void Checkpoints::follow_save(const CheckpointState& state, const Manifest& own) {
  if (const std::string directory = broadcast(ranks_, ""); !directory.empty()) gather(ranks_, write_part(directory, state, own));
  if (const std::string problem = broadcast(ranks_, ""); !problem.empty()) throw CheckpointError(problem);
}

// This rank's shard file; as text, what it adds to the manifest, or "!" and why it could not be written.
std::string Checkpoints::write_part(const std::string& directory, const CheckpointState& state, Manifest own) {
  try {
    if (!own.tensors.empty())
      own.files.push_back(write_shards(io_, directory, static_cast<int>(ranks_.rank()), state.shards, own.tensors));
    return write_manifest(own);
  } catch (const Error& error) {
    return "!" + std::string(error.what());
  }
}

// Everything but the last rename: the checkpoint is complete, on disk and re-read under a temporary name. Returns its bytes.
int64_t Checkpoints::stage(const std::string& directory, const CheckpointState& state, const Manifest& own, Manifest& manifest,
                           bool& told) {
  make_directory(io_, directory);
  if (ranks_.size() == 1) {
    manifest.files.push_back(write_shards(io_, directory, 0, state.shards, manifest.tensors));
  } else {
    broadcast(ranks_, directory);
    told = true;
    manifest.tensors.clear();
    std::string problems;
    for (const std::string& part : gather(ranks_, write_part(directory, state, own)))
      part.starts_with("!") ? void(problems += part.substr(1) + "\n") : add_part(manifest, parse_part(part));
    if (!problems.empty()) throw CheckpointError(problems.substr(0, problems.size() - 1));
  }
  try {
    check(manifest);
  } catch (const DamagedCheckpoint& error) {
    throw Error(text("the state cannot be a checkpoint: ", error.what()));
  }
  write_manifest_file(io_, directory, manifest);
  verify_files(io_, directory, load_manifest(io_, directory));
  return bytes_in(manifest);
}

bool Checkpoints::already_saved(int64_t step, const std::string& digest) {
  if (!path_exists(directory_ + "/" + step_name(step))) return false;
  try {
    const Manifest manifest = load_step(io_, directory_, step);
    return state_digest(manifest.tensors, manifest.counters) == digest && valid(step);
  } catch (const CheckpointError&) {
    return false;  // damaged: it is replaced
  }
}

bool Checkpoints::valid(int64_t step) {
  if (valid_.contains(step)) return true;
  try {
    verify_files(io_, directory_ + "/" + step_name(step), load_step(io_, directory_, step));
  } catch (const CheckpointError&) {
    return false;
  }
  valid_.insert(step);
  return true;
}

void Checkpoints::discard(const std::string& staged) {
  try {
    remove_directory(io_, staged, kManifestName);
  } catch (const CheckpointError& error) {
    warnings_.push_back(text("what a failed save left stays until the next start: ", error.what()));
  }
}

void Checkpoints::retain(int64_t just_saved) {
  try {
    const std::vector<int64_t> steps = steps_in(directory_);
    int64_t kept = 0;
    for (size_t i = steps.size(); i-- > 0;) {
      if (kept < keep_) {
        kept += valid(steps[i]);
      } else if (steps[i] != just_saved) {
        lease_->check();
        valid_.erase(steps[i]);
        delete_step(io_, directory_, steps[i]);
      }
    }
  } catch (const CheckpointError& error) {
    warnings_.push_back(text("an old checkpoint could not be deleted: ", error.what()));
  }
}

}  // namespace trireme
