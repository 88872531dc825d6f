// A run's directory of checkpoints: what is in it, and the moves that keep it whole. A checkpoint appears by one rename, of a
// directory that is complete and on disk, and disappears by one; what a crash leaves between has a name of its own.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"

namespace trireme {

inline constexpr auto kTemporary = ".tmp";      // being written or deleted
inline constexpr auto kReplaced = ".replaced";  // stepping aside for another of the same step

std::string step_name(int64_t step);  // "step-00001000"
// "step-00001000-SAVE.tmp", of one save alone: a process that lost its lock and its successor never write into each other's.
std::string staging_name(int64_t step, const std::string& save);

// The steps of which there is a directory, valid or not, rising; none when `directory` does not exist.
std::vector<int64_t> steps_in(const std::string& directory);

// Writes `directory`/manifest.json, durably, by a rename.
void write_manifest_file(const Io& io, const std::string& directory, const Manifest& manifest);
// The manifest of step-N; DamagedCheckpoint when it is another step's.
Manifest load_step(const Io& io, const std::string& directory, int64_t step);

// What a process that died left: half-written and half-deleted directories are removed, one that stepped aside returns unless its
// successor arrived. What cannot be removed is told in `warnings`.
void sweep(const Io& io, const std::string& directory, std::vector<std::string>& warnings);

// Renames the complete, synced directory `staged` to step-N and makes that durable. A step-N that is there steps aside first.
void commit_step(const Io& io, const std::string& directory, const std::string& staged, int64_t step);

// Takes the name away from step-N, durably, then deletes it, manifest first.
void delete_step(const Io& io, const std::string& directory, int64_t step);

}  // namespace trireme
