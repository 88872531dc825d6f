#include "train/run/replica_check.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/text_stream.h"
#include "checkpoint/digest.h"
#include "parallel/host_collectives.h"
#include "train/step/host_state.h"

namespace trireme {
namespace {

constexpr size_t kNamedTensors = 3;  // tensors, at most

using Digests = std::vector<std::pair<std::string, uint64_t>>;

void add_digest(TrainState& run, Digests& digests, const std::string& name, const Tensor& x) {
  std::vector<std::byte> bytes;
  digests.emplace_back(name, digest(on_host(run.device, x, bytes).data(), x.bytes()));
}

// Adds the weights that are held whole, which are the same on all replicas.
void add_weights(TrainState& run, Digests& digests) {
  if (!run.stage.shape().holding.weights) return;
  for (size_t unit = 0; unit < run.stage.units().size(); ++unit) run.sync.read(unit);
  for (const Parameter& parameter : run.stage.parameters()) add_digest(run, digests, parameter.spec.name, parameter.weight);
}

// Adds this rank's part of the state, which is the same in all copies.
void add_state(TrainState& run, Digests& digests) {
  for (const TensorSlice& slice : run.optimizer.slices()) add_digest(run, digests, "the optimizer's " + slice.name, slice.local);
}

std::string written(const std::string& who, const Digests& digests) {
  std::string lines = who;
  for (const auto& [name, value] : digests) lines += "\n" + hex(value) + " " + name;
  return lines;
}

struct Replica {
  std::string who;
  std::vector<std::string> lines;  // "DIGEST NAME", in one order on all
};

Replica parsed(const std::string& text) {
  TextReader in(text);
  Replica replica;
  std::getline(in, replica.who);
  for (std::string line; std::getline(in, line);) replica.lines.push_back(line);
  return replica;
}

// The ranks that differ in tensor number i from what most hold; all of them, if none are the most.
std::vector<size_t> odd_ones(const std::vector<Replica>& replicas, size_t i) {
  std::map<std::string, size_t> count;
  for (const Replica& replica : replicas) ++count[replica.lines[i]];
  const auto most = std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool majority = 2 * most->second > replicas.size();
  std::vector<size_t> odd;
  for (size_t r = 0; r < replicas.size() && count.size() > 1; ++r)
    if (!majority || replicas[r].lines[i] != most->first) odd.push_back(r);
  return odd;
}

std::string describe(const std::vector<Replica>& replicas) {
  std::map<std::vector<size_t>, std::vector<std::string>> tensors;  // by who is odd
  for (size_t i = 0; i < replicas.front().lines.size(); ++i)
    if (const std::vector<size_t> odd = odd_ones(replicas, i); !odd.empty())
      tensors[odd].push_back(replicas.front().lines[i].substr(17));
  std::string all;
  for (const auto& [odd, names] : tensors) {
    std::string line;
    for (const size_t r : odd) line += (line.empty() ? "" : " and ") + replicas[r].who;
    line += odd.size() == 1 ? " differs from the other replicas in " : " differ in ";
    for (size_t i = 0; i < std::min(kNamedTensors, names.size()); ++i) line += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > kNamedTensors) line += " and " + std::to_string(names.size() - kNamedTensors) + " more tensors";
    all += (all.empty() ? "" : "; ") + line;
  }
  return all;
}

// Compares within the groups of which `others` is this rank's.
std::string compare(TrainState& run, const Comm& others, const Digests& digests) {
  const std::string lines = written(run.mesh.describe(), digests);
  const size_t begin = run.mesh.describe().size();
  const auto all = static_cast<int64_t>(digest(lines.data() + begin, static_cast<int64_t>(lines.size() - begin)) >> 2);
  const std::vector<int64_t> ends = largest(others, {all, -all});  // equal on all replicas: the largest is the smallest
  const bool differ = ends[0] != -ends[1];
  if (largest(run.mesh.all(), differ) == 0) return "";
  std::vector<Replica> replicas;
  for (const std::string& text : gather(others, differ ? lines : "")) replicas.push_back(parsed(text));
  std::string found;
  for (const std::string& group : gather(run.mesh.all(), differ && others.rank() == 0 ? describe(replicas) : ""))
    if (!group.empty()) found += (found.empty() ? "" : "; ") + group;
  return broadcast(run.mesh.all(), found);
}

}  // namespace

std::string compare_replicas(TrainState& run) {
  const Comm &owners = run.mesh.owner_group(), &copies = run.mesh.copy_group();
  Digests digests;
  add_weights(run, digests);
  std::string found;
  if (owners.size() > 1) found = compare(run, owners, digests);
  if (!found.empty() || copies.size() == 1) return found;
  if (run.config.parallel.local()) digests.clear();  // between outer steps each copy has weights of its own
  add_state(run, digests);
  return compare(run, copies, digests);
}

}  // namespace trireme
