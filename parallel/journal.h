// Journal: the last wait that each thread of each rank entered or left. It is in memory that other
// processes of the node read without the rank's help, so it shows what a rank that hangs, loops or
// is stopped was doing. It uses neither MPI nor locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/link_times.h"
#include "parallel/world.h"

namespace trireme {

// The ranks of the world in a group: first, first + stride, ...
struct GroupRanks {
  int32_t first = 0, stride = 1, count = 1;
  bool operator==(const GroupRanks&) const = default;
  bool has(int64_t rank) const { return rank >= first && (rank - first) % stride == 0 && (rank - first) / stride < count; }
  int64_t member(int64_t index) const { return first + index * stride; }
};

// A wait for other ranks of a group along an axis.
struct RankWait {
  const char* what;   // "all_reduce"
  const char* along;  // "dp"
  GroupRanks group;
  int64_t bytes;
  int64_t peer = -1;  // the other end of a message; -1: a collective of the whole group
  // Between hosts, on a thread that does not wait for the lanes: their order differs between ranks, so these are counted apart.
  bool hosts = false;
};

// A wait that was entered and perhaps left.
struct JournalEntry {
  std::array<char, 24> what{};
  std::array<char, 8> along{};
  GroupRanks group;
  int32_t peer = -1;
  int64_t number = 0;  // the wait's number in its group, from 1; 0 for messages, which are not counted
  int64_t bytes = 0;
  int64_t since = 0;   // time of entry or exit, in nanoseconds of the node's steady clock
  int32_t thread = 0;  // the system's thread id
  int32_t inside = 0;  // 1: not yet left
  int32_t hosts = 0;   // 1: see RankWait
  int32_t unused = 0;  // no bits without a value
};

// Collectives of a group that a rank's GPU has entered. The GPU counts, so it also counts those of a graph.
struct GpuWaits {
  std::array<char, 8> along{};
  GroupRanks group;
  int64_t entered = 0;
};

// A rank's part of the processors since its node's last progress, in seconds.
struct ProcessorShare {
  double counted = 0;     // silence that counts: without the time in which a thread was ready to run but had no core
  double unserved = 0;    // that time
  double used = 0;        // processor time of the thread that used most, of those that do not wait for other ranks
  bool computes = false;  // it has used some lately
};

// Contents of a rank's journal at one moment.
struct RankReport {
  int64_t rank = 0;
  int32_t process = 0;
  std::string host;
  char state = 'R';                     // of the process: see ProcessState
  int64_t step = 0, part = 0;           // begun: optimizer steps, from 1; microbatches or other parts of the work
  std::string doing;                    // "training", "saving"
  double silent = 0;                    // seconds since its last progress
  bool watched = false;                 // its watchdog has run lately
  bool waits_for_gpu = false;           // its host has waited lately for GPU work, which may include collectives
  ProcessorShare share{};               // as measured by the node's watchdog, not by look()
  std::vector<JournalEntry> entries;    // the last of each thread that has any
  std::map<uint64_t, int64_t> entered;  // by group_key: number of the group's waits entered
  std::vector<GpuWaits> on_gpu{};       // of each group that its GPU counts
};

// Identifies a group along an axis, of lanes or of hosts; the same on all its ranks.
uint64_t group_key(const char* along, const GroupRanks& group, bool hosts = false);

class Journal {
 public:
  // Creates a journal in memory of this process alone, until all ranks connect(). They then read
  // the journals of their node; with `node_ranks`, of as many neighbours as if these were a node.
  explicit Journal(int64_t rank);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  void connect(const World& world, int64_t node_ranks = 0);

  // Thread-safe. Longer names are truncated; threads beyond 16 and groups beyond 32 are ignored.
  void enter(const RankWait& wait);
  void leave();
  void doing(const char* what);  // called by the training thread: "training", "evaluating", or the disk operation that it waits for
  void begin(int64_t step);      // likewise; resets part to 0
  void mark_progress();          // a part was begun or finished
  void gpu_waited();             // the host still waits for its GPU: no progress
  void watchdog_ran();           // called by the watchdog's thread
  void disk_moved();             // bytes were read or written: counts as progress while the training thread waits for them

  // For a GPU, which counts in this memory: all of it, and the eight bytes of a group in it, from 0; nullptr if there is no
  // place left. Reports show such a group as counted from then on, so ask only if the GPU reaches the memory.
  std::span<std::byte> memory();
  std::byte* gpu_counter(const char* along, const GroupRanks& group);

  LinkTimes& links() { return links_; }  // of this rank, on a CPU

  // Called by the rank that judges: names the culprit to its node; that rank then reports where its
  // threads are.
  void accuse(int64_t rank);
  int64_t accused() const;  // by any rank of the node; -1: none
  int64_t accuser() const;  // the rank of the node that has done so; -1: none
  void confess(const std::string& where);
  std::string confession(int64_t rank) const;  // the accused rank's report; "": none yet

  // Number of progress marks of all ranks of the node.
  int64_t moves() const;
  int64_t leader() const;                // the lowest rank of the node whose journal this one reads
  std::vector<RankReport> look() const;  // all ranks of the node, ascending

 private:
  struct Page;
  void each(const std::function<void(const Page&)>& look) const;
  struct Unmap {
    void operator()(Page* page) const;
  };
  int memory_ = -1;  // file descriptor without a name
  int64_t leader_ = 0;
  std::atomic<bool> waits_for_disk_ = true;
  LinkTimes links_;
  std::unique_ptr<Page, Unmap> own_;
  std::vector<std::unique_ptr<Page, Unmap>> others_;
};

// Records a wait for the lifetime of the object; does nothing without a journal or in a group of
// one.
class JournalSpan {
 public:
  JournalSpan(Journal* journal, const RankWait& wait) : journal_(wait.group.count > 1 ? journal : nullptr) {
    if (journal_ != nullptr) journal_->enter(wait);
  }
  ~JournalSpan() {
    if (journal_ != nullptr) journal_->leave();
  }
  JournalSpan(const JournalSpan&) = delete;
  JournalSpan& operator=(const JournalSpan&) = delete;

 private:
  Journal* journal_;
};

}  // namespace trireme
