#include "train/run/scrubber.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/rank_file.h"
#include "kernels/device.h"

namespace trireme {
namespace {

constexpr int kLeastNice = 19;
constexpr int kIdleClass = 3, kClassShift = 13;  // of ioprio_set(2)
constexpr int64_t kLeastPart = 64 << 10;         // bytes that any read counts as, for the calls around it
constexpr double kBetweenRounds = 1;             // seconds

void take_only_what_is_left() {
  const auto self = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, self, kLeastNice);
  (void)syscall(SYS_ioprio_set, 1, self, kIdleClass << kClassShift);  // a hint: a system may forbid it
  use_threads_here(1);
}

}  // namespace

Scrubber::Scrubber(Orders orders) : orders_(std::move(orders)) {
  try {
    if (orders_.shard_rate > 0 && !orders_.shards.empty()) threads_.emplace_back([this] { scrub_shards(); });
    if (orders_.checkpoint_rate > 0 && !orders_.checkpoints.empty()) threads_.emplace_back([this] { scrub_checkpoints(); });
  } catch (...) {  // the system may refuse the second
    stop();
    throw;
  }
}

Scrubber::~Scrubber() { stop(); }

void Scrubber::stop() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Scrubber::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !ending_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ends_; });
}

void Scrubber::check() const {
  if (!found_) return;
  const std::lock_guard lock(mutex_);
  throw DataError(damage_);
}

namespace {

// Reads a page of a shard, or for -1 its tables: the bytes of it. `problem`: why it is damaged, or "".
int64_t check_part(const ShardReader& shard, int64_t page, std::string& problem) try {
  problem.clear();
  return page < 0 ? shard.check_tables() : shard.check_page(page);
} catch (const DataError& damage) {
  problem = damage.what();
  return 0;
}

}  // namespace

void Scrubber::scrub_shards() {
  take_only_what_is_left();
  for (;;) {
    for (const ShardReader* shard : orders_.shards)
      for (int64_t page = -1; page < shard->pages(); ++page) {
        std::string problem;
        int64_t bytes = check_part(*shard, page, problem);
        if (!problem.empty()) bytes = check_part(*shard, page, problem);  // a read may fail once
        if (!problem.empty()) {
          const std::lock_guard lock(mutex_);
          damage_ = problem;
          found_ = true;
          return;
        }
        shard_bytes_ += bytes;
        if (!pause(static_cast<double>(std::max(bytes, kLeastPart)) / orders_.shard_rate)) return;
      }
    if (!pause(kBetweenRounds)) return;
  }
}

void Scrubber::scrub_checkpoints() {
  take_only_what_is_left();
  std::map<int64_t, std::string> known;  // steps that are damaged, with their problems
  for (;;) {
    try {
      for (const Look look : {Look::sizes, Look::bytes})
        for (const int64_t step : steps_in(Io(), orders_.checkpoints)) {
          scrub_step(step, look, known[step]);
          if (!pause(0)) return;
        }
    } catch (const CheckpointError&) {
      // The directory cannot be listed: saves and restores report it.
    }
    if (!pause(kBetweenRounds)) return;
  }
}

// A step that fails is read once more: it may have been replaced or deleted meanwhile.
void Scrubber::scrub_step(int64_t step, Look look, std::string& known) {
  std::string problem = problem_in(step, look);
  if (!problem.empty()) problem = problem_in(step, look);
  if (problem.empty() && look == Look::bytes) known.clear();
  if (problem.empty() || !pause(0)) return;
  if (std::exchange(known, problem) == problem) return;
  ++damaged_;
  if (orders_.damaged) orders_.damaged(step, problem);
}

// The manifest of a step, with the files that are this node's to read.
Manifest Scrubber::part_of(const Io& io, int64_t step) const {
  const std::string path = orders_.checkpoints + "/" + step_name(step), content = manifest_text(io, path);
  if (orders_.expected && !orders_.expected(step, digest(content)))
    throw DamagedCheckpoint(path + "/" + kManifestName + " is not the one that was committed, says the run's lineage.jsonl");
  Manifest manifest = require_step(parse_manifest_of(path, content), path, step);
  std::vector<FileEntry> mine;
  for (int64_t i = orders_.part; i < std::ssize(manifest.files); i += orders_.parts)
    mine.push_back(std::move(manifest.files[static_cast<size_t>(i)]));
  manifest.files = std::move(mine);
  return manifest;
}

// Why a step is damaged; "" if it is whole or gone.
std::string Scrubber::problem_in(int64_t step, Look look) {
  Io io;
  io.pread = [this, real = io.pread](int fd, void* bytes, size_t count, off_t offset) -> ssize_t {
    const double seconds = static_cast<double>(std::max(static_cast<int64_t>(count), kLeastPart)) / orders_.checkpoint_rate;
    if (!pause(seconds)) return errno = ECANCELED, -1;
    const ssize_t n = real(fd, bytes, count, offset);
    if (n > 0) checkpoint_bytes_ += n;
    return n;
  };
  const std::string path = orders_.checkpoints + "/" + step_name(step);
  std::optional<Manifest> part;
  try {
    part = part_of(io, step);
    if (look == Look::sizes)
      verify_sizes(io, path, *part);
    else if (orders_.parts == 1)
      verify_files(io, path, *part);
    else
      verify_part(io, path, *part);
  } catch (const CheckpointError& damage) {
    const bool mine = part || orders_.part == 0;  // all read the manifest, and one reports it
    if (mine && path_exists(Io(), path)) return damage.what();
  }
  return "";
}

}  // namespace trireme
