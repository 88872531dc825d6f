#include "checkpoint/reader.h"

#include <set>

#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"

namespace trireme {

namespace {

std::string pick(const std::string& path) {
  if (path_exists(Io(), path + "/" + kManifestName)) return path;
  std::string problems;
  const std::vector<CheckpointInfo> found = list_checkpoints(path);
  for (size_t i = found.size(); i-- > 0;) {
    if (found[i].problem.empty()) return found[i].directory;
    problems += "\n" + found[i].problem;
  }
  throw CheckpointError(text("no usable checkpoint in ", path, problems));
}

std::optional<std::string> difference(const TensorEntry& a, const TensorEntry& b) {
  if (a.dtype != b.dtype) return text(a.name, ": dtype ", name_of(a.dtype), " and ", name_of(b.dtype));
  if (a.shape != b.shape) return a.name + ": the shapes differ";
  if (a.digest != b.digest) return a.name + ": the elements differ";
  return std::nullopt;
}

}  // namespace

std::string checkpoints_of(const std::string& run) { return path_exists(Io(), run + "/checkpoints") ? run + "/checkpoints" : run; }

std::vector<CheckpointInfo> list_checkpoints(const std::string& run) {
  const Io io;
  const std::string directory = checkpoints_of(run);
  std::vector<CheckpointInfo> found;
  for (const int64_t step : steps_in(io, directory)) {
    CheckpointInfo info{.directory = directory + "/" + step_name(step), .step = step, .problem = ""};
    try {
      const Manifest manifest = load_step(io, directory, step);
      verify_sizes(io, info.directory, manifest);
      info.tensors = static_cast<int64_t>(manifest.tensors.size());
      info.bytes = bytes_in(manifest);
    } catch (const CheckpointError& error) {
      info.problem = error.what();
    }
    found.push_back(std::move(info));
  }
  return found;
}

Verified verify_checkpoint(const std::string& directory) {
  const Io io;
  const Manifest manifest = load_manifest(io, directory);
  verify_files(io, directory, manifest);
  return {.step = manifest.step,
          .tensors = static_cast<int64_t>(manifest.tensors.size()),
          .bytes = bytes_in(manifest),
          .digest = state_digest(manifest.tensors, manifest.counters)};
}

std::optional<std::string> diff_checkpoints(const std::string& a, const std::string& b) {
  const Io io;
  const Manifest left = load_manifest(io, pick(a)), right = load_manifest(io, pick(b));
  for (const TensorEntry& tensor : left.tensors) {
    const TensorEntry* other = find_tensor(right, tensor.name);
    if (other == nullptr) return tensor.name + ": only in " + a;
    if (auto found = difference(tensor, *other)) return found;
  }
  for (const TensorEntry& tensor : right.tensors)
    if (find_tensor(left, tensor.name) == nullptr) return tensor.name + ": only in " + b;
  for (const auto& [name, value] : left.counters) {
    const auto other = right.counters.find(name);
    if (other == right.counters.end()) return text("counter ", name, ": only in ", a);
    if (other->second != value) return text("counter ", name, ": ", value, " and ", other->second);
  }
  for (const auto& [name, value] : right.counters)
    if (!left.counters.contains(name)) return text("counter ", name, ": only in ", b);
  return std::nullopt;
}

CheckpointReader::CheckpointReader(const std::string& run_or_checkpoint)
    : directory_(pick(run_or_checkpoint)), manifest_(load_manifest(io_, directory_)) {}

void CheckpointReader::read(const std::string& name, Tensor into) const {
  const TensorEntry* tensor = find_tensor(manifest_, name);
  if (tensor == nullptr) throw CheckpointError(text(directory_, " has no tensor ", name));
  if (pieces_.empty()) {
    files_.emplace(io_, directory_, manifest_);
    pieces_ = pieces_by_tensor(*files_);
  }
  read_tensor(*files_, *tensor, pieces_[static_cast<size_t>(tensor - manifest_.tensors.data())], into);
}

void CheckpointReader::read(const std::vector<TensorSlice>& slices, const ReadingRank& rank) const {
  std::set<std::string> names;
  for (const TensorEntry& tensor : manifest_.tensors) names.insert(tensor.name);
  read_slices(io_, directory_, manifest_, slices, {.tensors = names, .reader = Reader::one_of_many, .rank = rank});
}

}  // namespace trireme
