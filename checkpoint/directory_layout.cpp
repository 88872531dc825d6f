#include "checkpoint/directory_layout.h"

#include <algorithm>

#include "checkpoint/digest.h"
#include "checkpoint/removal.h"

namespace trireme {

namespace {

// Inverse of step_name(); -1 for any other name.
int64_t step_of(const std::string& name) {
  const bool digits = name.starts_with("step-") && name.size() >= 13 && name.size() <= 23 &&
                      name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (!digits) return -1;
  const int64_t step = std::stoll(name.substr(5));
  return step_name(step) == name ? step : -1;
}

// `name` without `suffix`; "" if it does not end in it.
std::string without(const std::string& name, const std::string& suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : "";
}

// The step of a directory in which a save writes; -1 for any other name.
int64_t step_staged(const std::string& name) {
  const std::string made = without(name, kTemporary);
  const bool staged = made.size() > 17 && made[made.size() - 17] == '-' && from_hex(made.substr(made.size() - 16));
  return staged ? step_of(made.substr(0, made.size() - 17)) : -1;
}

// True for names made while a step is saved or deleted.
bool is_temporary(const std::string& name) { return step_of(without(name, kTemporary)) >= 0 || step_staged(name) >= 0; }

// Removes what a save or a deletion left. A save whose job has just lost the run's lock may still be renaming its directory: only
// who renames it first has it, so that none is committed of which files are gone.
void remove_temporary(const Io& io, const std::string& directory, const std::string& name) {
  std::string mine = name;
  if (const int64_t step = step_staged(name); step >= 0) {
    mine = staging_name(step, random_id());
    try {
      rename_path(io, directory + "/" + name, directory + "/" + mine);
    } catch (const CheckpointError&) {
      if (path_exists(io, directory + "/" + name)) throw;
      return;
    }
  }
  remove_directory(io, directory + "/" + mine, kManifestName);
}

void settle_replaced(const Io& io, const std::string& step) {
  if (path_exists(io, step))
    remove_directory(io, step + kReplaced, kManifestName);
  else
    rename_path(io, step + kReplaced, step);
}

}  // namespace

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

std::string staging_name(int64_t step, const std::string& save) { return step_name(step) + "-" + save + kTemporary; }

std::vector<int64_t> steps_in(const Io& io, const std::string& directory) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(io, directory))
    if (const int64_t step = step_of(name); step >= 0) steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool is_step_directory(const std::string& name) {
  return step_of(name) >= 0 || is_temporary(name) || step_of(without(name, kReplaced)) >= 0;
}

uint64_t write_manifest_file(const Io& io, const std::string& directory, const std::string& manifest) {
  const std::string path = directory + "/" + kManifestName, temporary = path + kTemporary;
  IoFile file = IoFile::create(io, temporary);
  file.write_at(manifest.data(), std::ssize(manifest), 0);
  file.sync();
  file.close();
  rename_path(io, temporary, path);
  sync_directory(io, directory);
  if (manifest_text(io, directory) != manifest) throw DamagedCheckpoint(path + " does not read back as it was written");
  return digest(manifest);
}

Manifest load_step(const Io& io, const std::string& directory, int64_t step) {
  const std::string path = directory + "/" + step_name(step);
  return require_step(load_manifest(io, path), path, step);
}

Manifest require_step(Manifest manifest, const std::string& directory, int64_t step) {
  if (manifest.step != step) throw DamagedCheckpoint(text(directory, "/", kManifestName, " belongs to step ", manifest.step));
  return manifest;
}

void sweep(const Io& io, const std::string& directory, std::vector<std::string>& warnings) {
  for (const std::string& name : names_in(io, directory)) {
    try {
      if (is_temporary(name)) remove_temporary(io, directory, name);
      if (const std::string step = without(name, kReplaced); step_of(step) >= 0) settle_replaced(io, directory + "/" + step);
    } catch (const CheckpointError& error) {
      warnings.push_back(text("cannot remove what an earlier process left: ", error.what()));
    }
  }
}

void commit_step(const Io& io, const std::string& directory, const std::string& staged, int64_t step) {
  const std::string path = directory + "/" + step_name(step);
  const bool replaces = path_exists(io, path);
  if (replaces) {
    remove_directory(io, path + kReplaced, kManifestName);
    rename_path(io, path, path + kReplaced);
  }
  try {
    rename_path(io, staged, path);
  } catch (const CheckpointError&) {
    if (replaces) settle_replaced(io, path);
    throw;
  }
  sync_directory(io, directory);
  if (!replaces) return;
  try {
    settle_replaced(io, path);
  } catch (const CheckpointError&) {
    // The step is committed; the next start sweeps, and says what it cannot remove.
  }
}

void delete_step(const Io& io, const std::string& directory, int64_t step) {
  const std::string path = directory + "/" + step_name(step);
  remove_directory(io, path + kTemporary, kManifestName);
  rename_path(io, path, path + kTemporary);
  sync_directory(io, directory);
  remove_directory(io, path + kTemporary, kManifestName);
}

}  // namespace trireme
