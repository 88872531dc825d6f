#include "checkpoint/memory_tier.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/memory_directory.h"
#include "checkpoint/shards.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

// Nodes that only pretend to be share one machine's memory.
std::string directory_of(const std::string& token, const Nodes& nodes) {
  return memory_directory(token) + (nodes.pretended() && nodes.here() > 0 ? "-" + std::to_string(nodes.here()) : "");
}

constexpr int64_t kPortion = 4 << 20;  // bytes of a file that travel at once

// What one rank could not do no rank goes on with.
template <class Failure>
void throw_together(const Comm& ranks, const std::string& mine) {
  if (const std::string problem = first_problem(ranks, mine); !problem.empty()) throw Failure(problem);
}

// What `work` throws.
template <class Work>
std::string problem_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

template <class Number>
std::vector<Number> numbers_in(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<Number>(in), {}};
}

void send_file(const Io& io, const Nodes& nodes, int64_t to, const std::string& path, int64_t bytes) {
  const DiskMemory portion(kPortion);
  std::optional<IoFile> file;
  std::string problem = problem_of([&] { file.emplace(IoFile::open_to_read(io, path)); });
  for (int64_t at = 0; at < bytes; at += kPortion) {
    const int64_t now = std::min(kPortion, bytes - at);
    // The other end waits for as many bytes, whatever they are; they are checked there.
    if (problem.empty()) problem = problem_of([&] { file->read_at(portion.data(), now, at); });
    nodes.send(to, portion.data(), now);
  }
  if (!problem.empty()) throw DamagedCheckpoint(problem);
}

// As a file of another name until it is complete.
void receive_file(const Io& io, const Nodes& nodes, int64_t from, const std::string& path, int64_t bytes) {
  const DiskMemory portion(kPortion);
  std::optional<IoFile> file;
  unlink((path + kTemporary).c_str());  // of a start that was cut off
  std::string problem = problem_of([&] { file.emplace(IoFile::create(io, path + kTemporary)); });
  for (int64_t at = 0; at < bytes; at += kPortion) {
    const int64_t now = std::min(kPortion, bytes - at);
    nodes.receive(from, portion.data(), now);
    if (problem.empty()) problem = problem_of([&] { file->write_at(portion.data(), now, at); });
  }
  if (problem.empty())
    problem = problem_of([&] {
      file->close();
      rename_path(io, path + kTemporary, path);
    });
  if (problem.empty()) return;
  unlink((path + kTemporary).c_str());
  throw CheckpointError(problem);
}

// The files that hold some of `shards`.
std::set<int64_t> files_of(const Manifest& manifest, const std::vector<NamedShard>& shards) {
  std::set<int64_t> files;
  for (const NamedShard& shard : shards) {
    const TensorEntry* tensor = find_tensor(manifest, shard.name);
    if (tensor == nullptr || tensor->shape != shard.global_shape) continue;  // what reads them says so
    for (const Piece& piece : tensor->pieces)
      if (intersect(piece.box, box_of(shard)).size() > 0) files.insert(piece.file);
  }
  return files;
}

}  // namespace

MemoryTier::MemoryTier(const Io& io, const std::string& run_directory, bool wanted, const Nodes& nodes, const Comm& ranks)
    : io_(io), nodes_(nodes), ranks_(ranks), run_directory_(run_directory) {
  const bool first = ranks_.rank() == 0;
  std::string token = broadcast(ranks_, first ? memory_token(run_directory) : "");
  const Owner owner = leads() && !token.empty() ? owner_of(directory_of(token, nodes_), run_directory) : Owner::nobody;
  const std::vector<int64_t> some = largest(ranks_, {owner == Owner::we, owner == Owner::another});
  if (some[0] == 0 || some[1] != 0) token.clear();  // of a copied run, or one whose machines have been started anew
  std::string problem;
  if (token.empty() && first) {
    drop_memory_token(run_directory);  // machines that come back with what they had are too late
    if (wanted) problem = problem_of([&] { keep_memory_token(run_directory, token = random_id()); });
  }
  token = broadcast(ranks_, token);
  if (!token.empty()) directory_ = directory_of(token, nodes_);
  if (leads() && problem.empty())
    problem = problem_of([&] {
      sweep_memory_directories();
      if (!exists()) return;
      make_memory_directory(directory_, run_directory);
      take_lease();
      sweep(io_, directory_, warnings_);
    });
  throw_together<ConfigError>(ranks_, problem);
}

// Of a start that has just ended, some node's rank may live a moment longer.
void MemoryTier::take_lease() {
  for (int tries = 0; !lease_; ++tries) {
    try {
      lease_.emplace(directory_);
    } catch (const ConfigError&) {
      if (tries == 100) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  archive_.emplace(io_, directory_, CheckpointConfig{.keep = 2}, nodes_.count() == 1 ? Holds::all : Holds::some);
}

// What this node has, a line for each step: the step, its save, of how many files, and which of them are here; or the step, 0 and
// what is wrong with it.
std::string MemoryTier::list() const {
  std::string lines;
  for (const int64_t step : steps_in(directory_)) {
    const std::string problem = problem_of([&] {
      const Manifest manifest = load_step(io_, directory_, step);
      const Manifest here = nodes_.count() == 1 ? manifest : part_in(directory_ + "/" + step_name(step), manifest);
      verify_sizes(io_, directory_ + "/" + step_name(step), here);
      std::set<std::string> names;
      for (const FileEntry& file : here.files) names.insert(file.name);
      lines += text(step, ' ', manifest.save, ' ', manifest.files.size());
      for (size_t f = 0; f < manifest.files.size(); ++f)
        if (names.contains(manifest.files[f].name)) lines += text(' ', f);
      lines += '\n';
    });
    if (!problem.empty()) lines += text(step, " 0 ", problem.substr(0, problem.find('\n')), '\n');
  }
  return lines;
}

std::vector<MemoryTier::Step> MemoryTier::find() const {
  if (!exists()) return {};
  const std::vector<std::string> lists = gather(ranks_, leads() ? list() : "");
  std::map<std::pair<int64_t, std::string>, Step> found;  // "0": of no save that can be told
  for (int64_t node = 0; node < nodes_.count() && !lists.empty(); ++node) {
    std::istringstream lines(lists[static_cast<size_t>(nodes_.leader(node))]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      Step here;
      in >> here.step >> here.save;
      Step& step = found.try_emplace({here.step, here.save}, here).first->second;
      if (here.save == "0") {
        std::getline(in >> std::ws, step.problem);
        continue;
      }
      size_t files = 0;
      in >> files;
      step.files.resize(files);
      step.on.push_back(node);
      for (size_t file = 0; in >> file;) step.files.at(file).push_back(node);
    }
  }
  std::string told;
  for (auto& [key, step] : found) {
    const auto lost = std::count_if(step.files.begin(), step.files.end(), [](const auto& nodes) { return nodes.empty(); });
    if (lost > 0)
      step.problem =
          text(lost, " of its ", step.files.size(), " files ", lost == 1 ? "is" : "are", " in no node's memory any more");
    told += text(step.step, ' ', step.save, ' ', step.problem, '\n');
  }
  std::vector<Step> steps;
  std::istringstream lines(broadcast(ranks_, told));
  for (std::string line; std::getline(lines, line);) {
    Step step;
    std::istringstream in(line);
    in >> step.step >> step.save;
    std::getline(in >> std::ws, step.problem);
    if (const auto known = found.find({step.step, step.save}); known != found.end()) step = known->second;
    steps.push_back(std::move(step));
  }
  return steps;
}

// A step's manifest, to all ranks.
Manifest MemoryTier::share_manifest(const Step& step) const {
  const bool first = ranks_.rank() == 0;
  const int64_t owner = nodes_.leader(std::stoll(broadcast(ranks_, first ? std::to_string(step.on.front()) : "")));
  std::string words;
  if (ranks_.rank() == owner) {
    problem_of([&] {
      const Manifest manifest = load_step(io_, directory_, step.step);
      if (manifest.save == step.save) words = write_manifest(manifest);
    });
    if (!first) nodes_.send(0, words);
  } else if (first) {
    words = nodes_.receive(owner);
  }
  words = broadcast(ranks_, words);
  if (words.empty()) throw DamagedCheckpoint("its manifest is gone");
  return parse_manifest(words);
}

// Which files go where, so that each node has those that its ranks need, and the manifest: that is meant by a file -1.
std::vector<MemoryTier::Move> MemoryTier::agree_on_moves(const Step& step, const Manifest& manifest,
                                                         const std::vector<NamedShard>& shards) const {
  std::string needed;
  for (const int64_t file : files_of(manifest, shards)) needed += std::to_string(file) + ' ';
  std::string told;
  const std::vector<std::string> needs = gather(ranks_, needed);
  for (int64_t node = 0; node < nodes_.count() && ranks_.rank() == 0; ++node) {
    std::set<int64_t> files;
    for (const int64_t rank : nodes_.ranks(node))
      for (const int64_t file : numbers_in<int64_t>(needs[static_cast<size_t>(rank)])) files.insert(file);
    if (std::ranges::find(step.on, node) == step.on.end()) told += text("-1 ", nodes_.leader(node), ' ', nodes_.leader(node), '\n');
    for (const int64_t file : files) {
      const std::vector<int64_t>& on = step.files.at(static_cast<size_t>(file));
      if (std::ranges::find(on, node) != on.end()) continue;
      const int64_t from = on[static_cast<size_t>(file) % on.size()];
      told += text(file, ' ', nodes_.leader(from), ' ', nodes_.leader(node), '\n');
    }
  }
  const std::vector<int64_t> all = numbers_in<int64_t>(broadcast(ranks_, told));
  std::vector<Move> moves;
  for (size_t i = 0; i + 2 < all.size(); i += 3) moves.push_back({.file = all[i], .from = all[i + 1], .to = all[i + 2]});
  return moves;
}

// One after the other, so that no two wait for each other.
void MemoryTier::carry_out(const std::vector<Move>& moves, const Manifest& manifest) const {
  const std::string there = directory_ + "/" + step_name(manifest.step);
  const std::string staged = directory_ + "/" + staging_name(manifest.step, manifest.save);
  std::string problem, into = there;
  std::vector<std::string> received;
  const auto note = [&problem](const std::string& another) {
    if (problem.empty()) problem = another;
  };
  for (const Move& move : moves) {
    const bool receives = move.to == ranks_.rank();
    if (move.file < 0) {
      if (!receives) continue;
      into = staged;
      note(problem_of([&] {
        remove_directory(io_, staged, kManifestName);
        make_directory(io_, staged);
      }));
      continue;
    }
    const FileEntry& file = manifest.files[static_cast<size_t>(move.file)];
    if (receives) {
      received.push_back(file.name);
      note(problem_of([&] { receive_file(io_, nodes_, move.from, into + "/" + file.name, file.bytes); }));
    }
    if (move.from == ranks_.rank()) note(problem_of([&] { send_file(io_, nodes_, move.to, there + "/" + file.name, file.bytes); }));
  }
  if (problem.empty()) note(problem_of([&] { settle(into, received, manifest); }));
  if (!problem.empty()) {
    for (const std::string& name : received) unlink((into + "/" + name).c_str());
    if (into == staged) problem_of([&] { remove_directory(io_, staged, kManifestName); });
  }
  throw_together<DamagedCheckpoint>(ranks_, problem);
}

// What came is what was saved, and stays.
void MemoryTier::settle(const std::string& into, const std::vector<std::string>& received, const Manifest& manifest) const {
  for (const std::string& name : received) verify_part(io_, into, only_file(manifest, name));
  if (into == directory_ + "/" + step_name(manifest.step)) return;
  write_manifest_file(io_, into, manifest);
  lease_->check();
  commit_step(io_, directory_, into, manifest.step);
}

bool MemoryTier::bring(const Step& step, const std::vector<NamedShard>& shards) const {
  if (nodes_.count() == 1) return false;
  const Manifest manifest = share_manifest(step);
  const std::vector<Move> moves = agree_on_moves(step, manifest, shards);
  carry_out(moves, manifest);
  return !moves.empty();
}

bool MemoryTier::drop_damaged(const Step& step) const {
  if (nodes_.count() == 1) return false;
  bool dropped = false;
  const std::string there = directory_ + "/" + step_name(step.step);
  if (leads())
    problem_of([&] {
      const Manifest manifest = load_step(io_, directory_, step.step);
      if (manifest.save != step.save) return;
      for (const FileEntry& file : part_in(there, manifest).files) {
        if (problem_of([&] { verify_part(io_, there, only_file(manifest, file.name)); }).empty()) continue;
        lease_->check();
        dropped |= unlink((there + "/" + file.name).c_str()) == 0;
      }
    });
  return largest(ranks_, dropped) != 0;
}

// By another token: what other nodes have by the old one is no longer this run's.
void MemoryTier::go_on_from(int64_t step) {
  if (!exists()) return;
  const std::vector<int64_t> here = leads() ? steps_in(directory_) : std::vector<int64_t>{};
  if (largest(ranks_, !here.empty() && here.back() > step) == 0) return;
  const std::string token = broadcast(ranks_, random_id()), before = std::exchange(directory_, directory_of(token, nodes_));
  std::string problem;
  if (leads())
    problem = problem_of([&] {
      lease_->check();
      for (const int64_t newer : here)
        if (newer > step) delete_step(io_, before, newer);
      archive_.reset();
      rename_path(io_, before, directory_);
      lease_.reset();
      take_lease();
    });
  throw_together<CheckpointError>(ranks_, problem);
  if (ranks_.rank() == 0) problem = problem_of([&] { keep_memory_token(run_directory_, token); });
  throw_together<CheckpointError>(ranks_, problem);
}

void MemoryTier::exchange(const std::string& staged, const std::string& part) const {
  if (nodes_.count() == 1) return;
  const auto &own = nodes_.ranks(nodes_.here()), &next = nodes_.ranks((nodes_.here() + 1) % nodes_.count()),
             &before = nodes_.ranks((nodes_.here() + nodes_.count() - 1) % nodes_.count());
  const size_t mine = static_cast<size_t>(std::ranges::find(own, ranks_.rank()) - own.begin());
  std::future<void> handed_over = std::async(std::launch::async, [&, to = next[mine % next.size()]] {
    nodes_.send(to, part);
    if (part.empty()) return;
    for (const FileEntry& file : parse_part(part).files) send_file(io_, nodes_, to, staged + "/" + file.name, file.bytes);
  });
  std::string problem;
  for (size_t theirs = mine; theirs < before.size(); theirs += own.size()) {
    const std::string words = nodes_.receive(before[theirs]);
    if (words.empty()) continue;
    const Manifest copy = parse_part(words);
    const std::string failed = problem_of([&] {
      for (const FileEntry& file : copy.files) receive_file(io_, nodes_, before[theirs], staged + "/" + file.name, file.bytes);
      verify_part(io_, staged, copy);
    });
    if (problem.empty()) problem = failed;
  }
  handed_over.get();
  if (!problem.empty()) throw CheckpointError(problem);
}

void MemoryTier::remove() {
  std::error_code ignored;
  if (leads() && exists()) std::filesystem::remove_all(directory_, ignored);
}

std::vector<std::string> MemoryTier::take_warnings() {
  std::vector<std::string> warnings = std::exchange(warnings_, {});
  if (archive_)
    for (std::string& warning : archive_->take_warnings()) warnings.push_back(std::move(warning));
  return warnings;
}

int64_t newest_in_memory(const std::string& run_directory) {
  const Io io;
  int64_t newest = -1;
  for (const std::string& directory : memory_directories_of(run_directory))
    for (const int64_t step : steps_in(directory)) {
      const std::string there = directory + "/" + step_name(step);
      const std::string problem = problem_of([&] { verify_sizes(io, there, part_in(there, load_step(io, directory, step))); });
      if (problem.empty()) newest = std::max(newest, step);
    }
  return newest;
}

}  // namespace trireme
