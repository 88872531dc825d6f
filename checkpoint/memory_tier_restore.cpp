// Restoring half of MemoryTier: lists the steps of all nodes and copies files to where they are
// needed.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text_stream.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/file_transfer.h"
#include "checkpoint/memory_tier.h"
#include "checkpoint/problem.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/removal.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

template <class Number>
std::vector<Number> numbers_in(const std::string& line) {
  TextReader in(line);
  return {std::istream_iterator<Number>(in), {}};
}

}  // namespace

// Contents of this node, a line for each step: the step, its save, its number of files, and which of
// them are here; or the step, 0 and the problem.
std::string MemoryTier::list() const {
  std::string lines;
  for (const int64_t step : steps_in(io_, directory_)) {
    const std::string problem = problem_of([&] {
      const Manifest manifest = load_step(io_, directory_, step);
      const Manifest here = nodes_.count() == 1 ? manifest : part_in(io_, directory_ + "/" + step_name(step), manifest);
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
  std::map<std::pair<int64_t, std::string>, Step> found;  // save "0": unknown, since its manifest is damaged
  for (int64_t node = 0; node < nodes_.count() && !lists.empty(); ++node) {
    TextReader lines(lists[static_cast<size_t>(nodes_.leader(node))]);
    for (std::string line; std::getline(lines, line);) {
      TextReader in(line);
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
  TextReader lines(broadcast(ranks_, told));
  for (std::string line; std::getline(lines, line);) {
    Step step;
    TextReader in(line);
    in >> step.step >> step.save;
    std::getline(in >> std::ws, step.problem);
    if (const auto known = found.find({step.step, step.save}); known != found.end()) step = known->second;
    steps.push_back(std::move(step));
  }
  return steps;
}

// Sends a step's manifest to all ranks.
MemoryTier::Shared MemoryTier::share_manifest(const Step& step) const {
  const bool first = ranks_.rank() == 0;
  const int64_t owner = nodes_.leader(std::stoll(broadcast(ranks_, first ? std::to_string(step.on.front()) : "")));
  std::string words;
  if (ranks_.rank() == owner) {
    problem_of([&] {
      const std::string there = directory_ + "/" + step_name(step.step), here = manifest_text(io_, there);
      if (require_step(parse_manifest_of(there, here), there, step.step).save == step.save) words = here;
    });
    if (!first) nodes_.send(0, words);
  } else if (first) {
    words = nodes_.receive(owner);
  }
  words = broadcast(ranks_, words);
  if (words.empty()) throw DamagedCheckpoint("its manifest is missing");
  return {.text = words, .manifest = parse_manifest(words)};
}

// Plans the copies that give each node the files that its ranks need, and the manifest, which
// counts as file -1.
std::vector<MemoryTier::Move> MemoryTier::agree_on_moves(const Step& step, const std::vector<int64_t>& mine) const {
  std::string needed;
  for (const int64_t file : mine) needed += std::to_string(file) + ' ';
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

// Copies one file after the other, so that no two transfers wait for each other.
void MemoryTier::carry_out(const std::vector<Move>& moves, const Shared& shared) const {
  const Manifest& manifest = shared.manifest;
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
  if (problem.empty()) note(problem_of([&] { settle(into, received, shared); }));
  if (!problem.empty()) {
    for (const std::string& name : received) problem_of([&] { remove_file(io_, into + "/" + name); });
    if (into == staged) problem_of([&] { remove_directory(io_, staged, kManifestName); });
  }
  throw_together<DamagedCheckpoint>(ranks_, problem);
}

// Verifies the received files and moves them into place.
void MemoryTier::settle(const std::string& into, const std::vector<std::string>& received, const Shared& shared) const {
  for (const std::string& name : received) verify_part(io_, into, only_file(shared.manifest, name));
  if (into == directory_ + "/" + step_name(shared.manifest.step)) return;
  write_manifest_file(io_, into, shared.text);
  run_lock_->check();
  commit_step(io_, directory_, into, shared.manifest.step);
}

bool MemoryTier::bring(const Step& step, const SlicesOf& slices_of, const LayoutOf& layout) const {
  if (nodes_.count() == 1) return false;
  const Shared shared = share_manifest(step);
  const std::string there = directory_ + "/" + step_name(step.step);
  RankFiles files(io_, there, shared.manifest);
  const auto mine = located_files(files, slices_of(shared.manifest), reading_rank(ranks_, shared.manifest, layout));
  // To bring all files to each node could fill its memory.
  throw_together<DamagedCheckpoint>(ranks_, mine ? "" : "this program cannot compute which of its files each node needs");
  const std::vector<Move> moves = agree_on_moves(step, *mine);
  carry_out(moves, shared);
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
      for (const FileEntry& file : part_in(io_, there, manifest).files) {
        if (problem_of([&] { verify_part(io_, there, only_file(manifest, file.name)); }).empty()) continue;
        run_lock_->check();
        remove_file(io_, there + "/" + file.name);
        dropped = true;
      }
    });
  return largest(ranks_, dropped) != 0;
}

}  // namespace trireme
