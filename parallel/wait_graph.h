// WaitGraph: which of a job's ranks waits for which, by their reports. The members of a group that a
// wait lacks are the first of the group's, sorted by the number of waits they have entered. So N
// ranks that wait for N others take memory and time of N log N, not of N squared.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

class WaitGraph {
 public:
  // Refers to the reports. Ranks are numbered by their places among them.
  explicit WaitGraph(const std::vector<RankReport>& ranks);

  bool waits(size_t i) const;  // for any other of them
  bool waits_for(size_t i, size_t other) const;
  int64_t waiting_for(size_t i) const { return waiting_[i]; }  // number of waits, of all others
  bool beyond() const { return beyond_; }                      // some wait for ranks without a report

  // Collectives that rank i's GPU and the other's have entered, if that alone shows that i waits for it.
  struct OnGpu {
    const GpuWaits* waits = nullptr;  // of rank i; nullptr: otherwise
    int64_t other = 0;
  };
  OnGpu on_gpu(size_t i, size_t other) const;

 private:
  // Members with a report that counts, by the number that they have entered, and for each number of first ones how many ranks
  // wait for them.
  struct Group {
    std::vector<std::pair<int64_t, size_t>> members;
    std::unordered_map<size_t, size_t> positions;
    std::vector<int64_t> waiting;
    size_t missing_before(int64_t number) const;
  };
  struct Wait {
    const Group* group = nullptr;  // nullptr: a message
    size_t missing = 0;            // number of the group's first members that it lacks
    size_t peer = 0;
    const GpuWaits* on_gpu = nullptr;
  };
  template <class Entered>
  Group& group_of(Group& group, const GroupRanks& ranks, Entered entered);  // filled with the ranks, at first
  void add(size_t i, Group& group, int64_t number, const GpuWaits* on_gpu);
  void add_message(size_t i, int64_t peer);
  bool meets(size_t i, const JournalEntry& message) const;
  static bool lacks(const Wait& wait, size_t other);

  const std::vector<RankReport>& ranks_;
  std::unordered_map<int64_t, size_t> places_;  // of each rank
  std::unordered_map<uint64_t, Group> groups_, gpu_groups_;
  std::vector<std::vector<Wait>> waits_;
  std::vector<int64_t> waiting_;
  bool beyond_ = false;
};

}  // namespace trireme
