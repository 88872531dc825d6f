#include "checkpoint/memory_tier.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/file_transfer.h"
#include "checkpoint/memory_directory.h"
#include "checkpoint/problem.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/save_summary.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

// Simulated nodes share one machine's memory, so each gets a directory of its own.
std::string directory_of(const std::string& token, const Nodes& nodes) {
  return memory_directory(token) + (nodes.pretended() && nodes.here() > 0 ? "-" + std::to_string(nodes.here()) : "");
}

// Memory of a copied run, of machines that have restarted, or that is no longer this user's alone.
std::string forgotten(const std::string& directory, bool another) {
  return text(
      "checkpoints in memory are not used, if there are any: ", directory, ", which RUN/memory names, ",
      another ? "is another run's, another user's or open to others" : "is gone: the machine has restarted or is another one");
}

}  // namespace

MemoryTier::MemoryTier(const Io& io, const std::string& run_directory, bool wanted, const Nodes& nodes, const Comm& ranks)
    : io_(io), nodes_(nodes), ranks_(ranks), run_directory_(run_directory) {
  const bool first = ranks_.rank() == 0;
  std::string token, problem;
  if (first) problem = problem_of([&] { token = memory_token(run_directory); });
  throw_together<ConfigError>(ranks_, problem);
  token = broadcast(ranks_, token);
  Owner owner = Owner::nobody;
  if (leads() && !token.empty()) problem = problem_of([&] { owner = owner_of(directory_of(token, nodes_), run_directory); });
  throw_together<ConfigError>(ranks_, problem);
  const std::vector<int64_t> some = largest(ranks_, {owner == Owner::we, owner == Owner::another});
  if (!token.empty() && (some[0] == 0 || some[1] != 0)) {
    if (first) warnings_.push_back(forgotten(directory_of(token, nodes_), some[1] != 0));
    token.clear();
  }
  if (token.empty() && first) {
    drop_memory_token(run_directory);  // the contents of machines that return later are outdated
    if (wanted) problem = problem_of([&] { keep_memory_token(run_directory, token = random_id()); });
  }
  token = broadcast(ranks_, token);
  if (!token.empty()) directory_ = directory_of(token, nodes_);
  if (leads() && problem.empty())
    problem = problem_of([&] {
      for (const std::string& removed : sweep_memory_directories(run_directory)) warnings_.push_back(removed);
      if (!exists()) return;
      take_lock();
      sweep(io_, directory_, warnings_);
    });
  throw_together<ConfigError>(ranks_, problem);
}

// Retries: a rank of a run that has just ended may live a moment longer.
void MemoryTier::take_lock() {
  for (int tries = 0; !run_lock_; ++tries) {
    make_memory_directory(directory_, run_directory_);
    try {
      run_lock_.emplace(directory_);
      make_memory_directory(directory_, run_directory_);  // whoever had the lock may have removed parts of it
    } catch (const ConfigError&) {
      run_lock_.reset();
      if (tries == 100) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  retention_.emplace(io_, directory_, CheckpointConfig{.keep = 2}, nodes_.count() == 1 ? Holds::all : Holds::some);
}

// Takes a new token, so that what other nodes hold under the old one no longer belongs to this run.
void MemoryTier::go_on_from(int64_t step) {
  if (!exists()) return;
  const std::vector<int64_t> here = leads() ? steps_in(io_, directory_) : std::vector<int64_t>{};
  if (largest(ranks_, !here.empty() && here.back() > step) == 0) return;
  const std::string token = broadcast(ranks_, random_id()), before = std::exchange(directory_, directory_of(token, nodes_));
  std::string problem;
  if (leads())
    problem = problem_of([&] {
      run_lock_->check();
      for (const int64_t newer : here)
        if (newer > step) delete_step(io_, before, newer);
      retention_.reset();
      rename_path(io_, before, directory_);
      run_lock_.reset();
      take_lock();
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
    for (const FileEntry& file : summary_of(part).files) send_file(io_, nodes_, to, staged + "/" + file.name, file.bytes);
  });
  std::string problem;
  for (size_t theirs = mine; theirs < before.size(); theirs += own.size()) {
    const std::string words = nodes_.receive(before[theirs]);
    if (words.empty()) continue;
    Manifest copy;
    const SaveSummary sent = summary_of(words);
    copy.files = sent.files, copy.tensors = sent.entries();
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
  if (!leads() || !exists()) return;
  const std::string problem = problem_of([&] { remove_memory_directory(directory_); });
  if (!problem.empty()) warnings_.push_back("cannot remove the checkpoints in memory: " + problem);
}

std::vector<std::string> MemoryTier::take_warnings() {
  std::vector<std::string> warnings = std::exchange(warnings_, {});
  if (retention_)
    for (std::string& warning : retention_->take_warnings()) warnings.push_back(std::move(warning));
  return warnings;
}

int64_t newest_in_memory(const std::string& run_directory) {
  const Io io;
  int64_t newest = -1;
  for (const std::string& directory : memory_directories_of(run_directory))
    for (const int64_t step : steps_in(io, directory)) {
      const std::string there = directory + "/" + step_name(step);
      const std::string problem = problem_of([&] { verify_sizes(io, there, part_in(io, there, load_step(io, directory, step))); });
      if (problem.empty()) newest = std::max(newest, step);
    }
  return newest;
}

}  // namespace trireme
