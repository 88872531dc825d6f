// Scrubber: threads of the lowest priority that read again what is at rest, page after page, round and round.
// They read token shards and the files of checkpoints. So damage is found before tokens are used again, or within one round, and a
// damaged checkpoint is not counted as kept. A round begins with the manifests and the sizes of all files.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "data/shard/shard.h"

namespace trireme {

class Scrubber {
 public:
  struct Orders {
    std::vector<const ShardReader*> shards{};  // they outlive the scrubber
    double shard_rate = 0;                     // bytes a second; 0: none
    std::string checkpoints{};                 // directory of the steps
    double checkpoint_rate = 0;                // likewise
    int64_t part = 0, parts = 1;               // of the files of each step: every `parts`-th
    // False if a step's manifest should have another digest than its text has. Called from a thread.
    std::function<bool(int64_t step, uint64_t manifest)> expected{};
    // Called from a thread, once for each damaged checkpoint.
    std::function<void(int64_t step, const std::string& problem)> damaged{};
  };
  explicit Scrubber(Orders orders);
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // DataError if a page of a shard was found damaged: it names the file and the tokens.
  void check() const;
  int64_t shard_bytes() const { return shard_bytes_; }
  int64_t checkpoint_bytes() const { return checkpoint_bytes_; }
  int64_t damaged() const { return damaged_; }  // checkpoints

 private:
  void stop();
  void scrub_shards();
  void scrub_checkpoints();
  enum class Look { sizes, bytes };
  void scrub_step(int64_t step, Look look, std::string& known);
  std::string problem_in(int64_t step, Look look);
  Manifest part_of(const Io& io, int64_t step) const;
  bool pause(double seconds);  // false: the scrubber ends

  const Orders orders_;
  mutable std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::atomic<bool> found_ = false;
  std::string damage_;  // of a shard
  std::atomic<int64_t> shard_bytes_ = 0, checkpoint_bytes_ = 0, damaged_ = 0;
  std::vector<std::thread> threads_;  // last, since they use all other members
};

}  // namespace trireme
