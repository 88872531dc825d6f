// RankWork: what a rank did in a window of steps, as the judgement on stragglers needs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "parallel/link_times.h"

namespace trireme {

// Parts of a step's work; waits for other ranks are not work.
enum class WorkPart { forward, backward, optimizer, data, other };
inline constexpr size_t kWorkParts = 5;

// Counters of a process and its machine over a window.
struct MachineCounters {
  float disk_faults = 0;  // page faults that read a disk
  float stolen = 0;       // fraction of the machine's processor time that its host gave to others
  float clock_ghz = 0;    // of the rank's core at the window's end; 0: unknown
  float throttles = 0;    // times that the processor was too hot
  float core_rate = 0;    // of an empty loop, in turns per second: the mean of a sample each step; 0: unknown
};

// Trivially copyable: ranks of one program send it as bytes.
struct RankWork {
  static constexpr size_t kSteps = 32;
  int64_t stage = 0;  // pipeline stage: its ranks have equal work
  std::array<char, 32> host{};
  std::array<float, kSteps> busy{};       // seconds of each step: its work, or processor time if ranks share cores, and its data
  std::array<float, kWorkParts> parts{};  // seconds of the window
  float seconds = 0, on_core = 0;         // of the window's work: by the clock, and of them with a core
  int32_t shares_cores = 0;               // 1: with other ranks
  int32_t links = 0;
  MachineCounters machine{};
  std::array<LinkTime, LinkTimes::kMost> link{};

  std::string host_name() const { return host.data(); }
};

}  // namespace trireme
