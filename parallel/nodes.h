// Nodes: which ranks share a machine, and messages between ranks that do not depend on steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm.h"
#include "parallel/world.h"

namespace trireme {

class Nodes {
 public:
  Nodes() = default;  // one node of one rank
  // Finds the nodes. All ranks of the world call it. `pretended`: if all ranks are on one machine,
  // as many neighbours count as a node; 0: they are one.
  explicit Nodes(const World& world, int64_t pretended = 0);

  int64_t count() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t here() const { return here_; }                                                               // this rank's node, from 0
  bool pretended() const { return pretended_; }                                                        // simulated on one machine
  const std::vector<int64_t>& ranks(int64_t node) const { return ranks_[static_cast<size_t>(node)]; }  // in the world, ascending
  const std::vector<std::vector<int64_t>>& all() const { return ranks_; }
  int64_t leader(int64_t node) const { return ranks(node).front(); }

  // Transfers between two ranks: from any thread, one at a time for each pair. Returns once
  // complete. Error if MPI fails.
  void send(int64_t to, const void* bytes, int64_t count) const;
  void receive(int64_t from, void* bytes, int64_t count) const;
  void send(int64_t to, const std::string& words) const;
  std::string receive(int64_t from) const;

 private:
  std::vector<std::vector<int64_t>> ranks_{{0}};
  int64_t here_ = 0;
  bool pretended_ = false;
  Comm messages_;
};

inline const Nodes kOneNode;

}  // namespace trireme
