// Agreements between the hosts of a Comm's ranks, outside of any stream: small, and each rank waits for all others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm.h"

namespace trireme {

std::vector<std::string> gather(const Comm& comm, const std::string& mine);  // on rank 0 of every rank, in order; elsewhere empty
std::string broadcast(const Comm& comm, const std::string& mine);            // rank 0's

// What a rank tells the others: what it has, or the problem that kept it from that.
struct Outcome {
  std::string words{};
  std::string problem{};  // empty: there is none
  bool failed() const { return !problem.empty(); }
};
std::vector<Outcome> gather(const Comm& comm, const Outcome& mine);
Outcome broadcast(const Comm& comm, const Outcome& mine);

// The problem that the first rank in order has, rank 0's own first; "": none of them has any.
std::string first_problem(const Comm& comm, std::string mine);
std::vector<double> sum(const Comm& comm, const std::vector<double>& mine);  // of as many numbers on every rank
// Of each place, over as many numbers on every rank.
std::vector<int64_t> largest(const Comm& comm, const std::vector<int64_t>& mine);
int64_t largest(const Comm& comm, int64_t mine);

}  // namespace trireme
