// Collectives between the hosts of a Comm's ranks, outside of any stream. For small data; each rank
// waits for all others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm.h"

namespace trireme {

std::vector<std::string> gather(const Comm& comm, const std::string& mine);  // on rank 0: every rank's, in order; elsewhere empty
std::string broadcast(const Comm& comm, const std::string& mine);            // rank 0's

// The result of a rank for the others: a text, or the problem that prevented it.
struct Outcome {
  std::string words{};
  std::string problem{};  // empty: none
  bool failed() const { return !problem.empty(); }
};
std::vector<Outcome> gather(const Comm& comm, const Outcome& mine);
Outcome broadcast(const Comm& comm, const Outcome& mine);

// Merges the words of all ranks in pairs, in their order; the result is on rank 0. `merge` gets the words of lower and of
// the ranks that follow them. Of ranks that failed, or whose merge threw, the problems, a line each.
Outcome fold(const Comm& comm, const Outcome& mine,
             const std::function<std::string(const std::string& lower, const std::string& higher)>& merge);

// The problem of the first rank that has one, rank 0's own first; "": no rank has one.
std::string first_problem(const Comm& comm, std::string mine);
// Element-wise; equally many numbers on every rank. Exact where at most one rank has another number than 0, or all are whole.
std::vector<double> sum(const Comm& comm, const std::vector<double>& mine);
// Element-wise maximum over the ranks of equally many numbers.
std::vector<int64_t> largest(const Comm& comm, const std::vector<int64_t>& mine);
int64_t largest(const Comm& comm, int64_t mine);
int64_t total(const Comm& comm, int64_t mine);  // the sum over the ranks

}  // namespace trireme
