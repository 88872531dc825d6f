// Trials of the links between the hosts of a run: messages of all pairs of ranks, and the clocks at both ends.
//
// On GPUs, too, these travel between the memories of the hosts; sums between GPUs are measured by bus_rates.h.
#pragma once

#include <vector>

#include "kernels/memory.h"
#include "parallel/comm.h"
#include "train/health/fabric_facts.h"

namespace trireme {

// All ranks call the same functions with the same arguments, in the same order.
class LinkTrial {
 public:
  explicit LinkTrial(const Comm& all);

  // Messages of all pairs, in rounds of a tournament, for about `seconds`: of as many rounds as that allows, spread evenly. Returns
  // the links of which this rank is the lower end. Leaves out those that `known`, what this rank has measured of smaller messages,
  // shows to be too slow for these.
  std::vector<LinkFacts> all_pairs(int64_t bytes, double seconds, const std::vector<LinkFacts>& known = {});
  // Links again, one after the other, each until it reaches the given rate or for half a second. On every rank: those of all.
  std::vector<LinkFacts> again(const std::vector<LinkFacts>& wanted);
  // How far each rank's clock is ahead of rank 0's; on rank 0.
  void compare_clocks(std::vector<MachineFacts>& ranks);
  // The largest messages of at most `most` of which a round takes about `seconds`, given what this rank has measured.
  int64_t bytes_for(const std::vector<LinkFacts>& measured, int64_t most, double seconds) const;

 private:
  double ping_pong(int64_t bytes, int64_t peer, int repeats);
  double best_rate(const LinkFacts& wanted);
  int64_t agree_repeats(int64_t peer, int64_t repeats);
  Tensor message(int64_t bytes);

  const Comm& all_;
  Device device_;
  std::optional<Buffer> memory_;
};

}  // namespace trireme
