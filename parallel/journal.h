// Journal: what each thread of each rank has last entered and left, in memory that the other processes of the node read without its
// help: it tells what a rank that hangs, loops or is stopped was doing. No MPI and no lock behind it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/world.h"

namespace trireme {

// The ranks of the world that form a group: first, first + stride, ...
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
  int64_t peer = -1;  // the rank at the other end of a message; -1: the whole group takes part
};

// A wait, entered and perhaps left.
struct JournalEntry {
  std::array<char, 24> what{};
  std::array<char, 8> along{};
  GroupRanks group;
  int32_t peer = -1;
  int64_t number = 0;  // of the group's, from 1; messages are not counted: 0
  int64_t bytes = 0;
  int64_t since = 0;   // nanoseconds of the node's steady clock: when it was entered, or left
  int32_t thread = 0;  // the system's id
  int32_t inside = 0;  // 1: not left yet
};

// What a rank's journal says at one moment.
struct RankReport {
  int64_t rank = 0;
  int32_t process = 0;
  std::string host;
  char state = 'R';            // of the process, as the system calls it: 'T' stopped, 'Z' and 'X' dead; 'X' too when it is gone
  int64_t step = 0, part = 0;  // begun: optimizer steps, from 1; microbatches or other parts of what is being done
  std::string doing;           // "training", "saving"
  double silent = 0;           // seconds since it last got on with anything
  std::vector<JournalEntry> entries;    // the last of each thread that has any
  std::map<uint64_t, int64_t> entered;  // by group_key: how many of a group's waits were entered
};

// Of a group along an axis, the same on all its ranks.
uint64_t group_key(const char* along, const GroupRanks& group);

class Journal {
 public:
  // In memory of this process alone, until all ranks connect(): they then read those of their node; with `node_ranks`, of so many
  // neighbours, as if these were a node.
  explicit Journal(int64_t rank);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  void connect(const World& world, int64_t node_ranks = 0);

  // From any thread; what does not fit is cut off or, of more than sixteen threads or groups, left out.
  void enter(const RankWait& wait);
  void leave();
  void doing(const char* what);  // of the thread that trains: "training", "evaluating", or what waits for disks
  void begin(int64_t step);      // likewise; part 0
  void mark_progress();          // a part was begun or done
  void disk_moved();             // bytes were read or written: counts where the thread that trains waits for them

  // The one that judges names the culprit to the ranks of its node; that tells them where its threads are.
  void accuse(int64_t rank);
  int64_t accused() const;  // by any of them; -1: nobody
  void confess(const std::string& where);
  std::string confession(int64_t rank) const;  // "": none yet

  // How often any rank of the node has got on with anything.
  int64_t moves() const;
  int64_t leader() const;                // the lowest rank of the node
  std::vector<RankReport> look() const;  // of the ranks of the node, rising

 private:
  struct Page;
  void each(const std::function<void(const Page&)>& look) const;
  struct Unmap {
    void operator()(Page* page) const;
  };
  int memory_ = -1;  // its file, which has no name
  int64_t leader_ = 0;
  std::atomic<bool> waits_for_disk_ = true;
  std::unique_ptr<Page, Unmap> own_;
  std::vector<std::unique_ptr<Page, Unmap>> others_;
};

// A wait that lasts as long as the scope; none without a journal or in a group of one.
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
