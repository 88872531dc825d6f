// Layout of a run's directory of checkpoints, and the moves that keep it consistent. A checkpoint
// appears by one rename of a complete, synced directory and disappears by another. Whatever a crash
// leaves in between has a distinct name.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"

namespace trireme {

inline constexpr auto kTemporary = ".tmp";      // being written or deleted
inline constexpr auto kReplaced = ".replaced";  // replaced by another of the same step

std::string step_name(int64_t step);  // "step-00001000"
// "step-00001000-SAVE.tmp", unique to one save: a process that lost its lock and its successor
// never write to the same directory.
std::string staging_name(int64_t step, const std::string& save);

// Steps that have a directory, valid or not, in ascending order. Empty if `directory` does not
// exist.
std::vector<int64_t> steps_in(const Io& io, const std::string& directory);

// True for the name of a step's directory, also of one that is half written, replaced or deleted.
bool is_step_directory(const std::string& name);

// Writes `directory`/manifest.json durably, by a rename, and reads it again. Returns the digest of its text.
uint64_t write_manifest_file(const Io& io, const std::string& directory, const std::string& manifest);
// Loads the manifest of step-N; DamagedCheckpoint if it belongs to another step.
Manifest load_step(const Io& io, const std::string& directory, int64_t step);
Manifest require_step(Manifest manifest, const std::string& directory, int64_t step);  // the same for one that was read

// Cleans up after a process that died: removes half-written and half-deleted directories, and
// restores a replaced one unless its successor arrived. Adds what it cannot remove to `warnings`.
void sweep(const Io& io, const std::string& directory, std::vector<std::string>& warnings);

// Renames the complete, synced directory `staged` to step-N, durably. An existing step-N is renamed
// first.
void commit_step(const Io& io, const std::string& directory, const std::string& staged, int64_t step);

// Renames step-N away, durably, then deletes it, manifest first.
void delete_step(const Io& io, const std::string& directory, int64_t step);

}  // namespace trireme
