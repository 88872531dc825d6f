#include "train/run/record_check.h"

#include <map>
#include <utility>

#include "base/file_lines.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/lineage.h"
#include "checkpoint/reader.h"

namespace trireme {
namespace {

// Manifests that can be read, by step.
std::map<int64_t, Manifest> manifests_of(const Io& io, const std::string& run_directory) {
  std::map<int64_t, Manifest> found;
  const std::string directory = checkpoints_of(run_directory);
  for (const int64_t step : steps_in(io, directory)) {
    try {
      found.emplace(step, load_step(io, directory, step));
    } catch (const CheckpointError&) {
      continue;  // its verification reports it
    }
  }
  return found;
}

CheckedRecord check_lineage(const Io& io, const std::string& path, const std::string& checkpoints,
                            const std::map<int64_t, Manifest>& manifests) {
  const LineageText lineage = read_lineage(io, path);
  CheckedRecord checked{.path = path, .bytes = lineage.whole.bytes, .problem = ""};
  if (!lineage.problems.empty()) checked.problem = lineage.problems.front();
  for (const Commit& commit : lineage.commits) {
    checked.step = commit.step;
    const auto there = manifests.find(commit.step);
    if (there == manifests.end() || there->second.save != commit.save || commit.manifest.empty() || !checked.problem.empty())
      continue;
    if (hex(digest(manifest_text(io, checkpoints + "/" + step_name(commit.step)))) != commit.manifest)
      checked.problem = text(path, ": the manifest of step ", commit.step, " is not the one that was committed");
  }
  return checked;
}

// The chain of the file's lines up to `bytes`.
ChainedDigest beginning_of(const std::string& path, ChainedDigest chain, int64_t bytes) {
  if (!path_exists(Io(), path)) return chain;
  FileLines lines(path);
  for (std::string line; chain.bytes < bytes && lines.next(line);) chain.add(line + "\n");
  return chain;
}

CheckedRecord check_record(const std::string& name, const std::string& path, const std::map<int64_t, Manifest>& manifests) {
  CheckedRecord checked{.path = path, .problem = ""};
  for (const auto& [step, manifest] : manifests) {
    const auto record = manifest.records.find(name);
    if (record == manifest.records.end() || !checked.problem.empty()) continue;
    const ChainedDigest found = beginning_of(path, ChainedDigest::of(name, manifest.run), record->second.bytes);
    if (found == record->second) {
      checked.bytes = found.bytes, checked.step = step;
    } else {
      checked.problem = text(path, found.bytes < record->second.bytes ? " is missing, or shorter" : " has other lines",
                             " than the checkpoint of step ", step, " knows");
      if (checked.step > 0) checked.problem += text("; it is whole up to step ", checked.step);
    }
  }
  return checked;
}

}  // namespace

std::vector<CheckedRecord> check_records(const std::string& run_directory) {
  const Io io;
  const std::map<int64_t, Manifest> manifests = manifests_of(io, run_directory);
  std::vector<CheckedRecord> all;
  if (const std::string lineage = lineage_path(run_directory); path_exists(io, lineage))
    all.push_back(check_lineage(io, lineage, checkpoints_of(run_directory), manifests));
  for (const char* name : {"metrics", "data"}) {
    CheckedRecord checked = check_record(name, run_directory + "/" + name + ".jsonl", manifests);
    if (checked.step > 0 || !checked.problem.empty()) all.push_back(std::move(checked));
  }
  return all;
}

}  // namespace trireme
