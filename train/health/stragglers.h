// Judges which rank is slow. In a synchronous step all ranks take equally long, and the slow one
// waits least: its work takes longer than that of its peers, the other ranks of its pipeline stage.
//
// NVIDIA's Resiliency Extension compares medians of sections likewise (straggler/reporting.py). Here a rank must also be slow in
// most steps, and several slow ranks of one node are named together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/health/rank_work.h"

namespace trireme {

struct Straggler {
  int64_t rank = 0;
  std::string host;
  double ratio = 1;   // of the median of its work in a step to that of its peers
  int64_t peers = 0;  // number of them
  std::string words;  // "rank 3 (gpu-12) computes 18 % longer than its 7 peers, backward most: it had no core for 15 % of ..."
};

// Median work of each rank in a step, in seconds.
std::vector<double> median_work(std::span<const RankWork> ranks);

// Median work of each rank relative to the median of its peers; 1 for a rank without peers.
std::vector<double> relative_work(std::span<const RankWork> ranks);

// The slowest rank whose work takes more than `ratio` times that of its peers, and in three of four steps at least half that
// excess more. Of ranks that share cores, one whose cores were as much slower is left out: it may run on others next. nullopt:
// none, or no rank has a peer.
std::optional<Straggler> find_straggler(std::span<const RankWork> ranks, double ratio);

// Links whose fastest exchange took more than twice the usual time per byte of their kind, a line each. It needs three links of a
// kind.
std::vector<std::string> slow_links(std::span<const RankWork> ranks);

}  // namespace trireme
