// What goes wrong, as words that ranks can tell each other: what one of them could not do, none goes on with.
#pragma once

#include <exception>
#include <string>

#include "parallel/host_collectives.h"

namespace trireme {

// What `work` throws; "" where it does not.
template <class Work>
std::string problem_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// All ranks call it: where `mine` of some rank is a problem, each throws the same one.
template <class Failure>
void throw_together(const Comm& ranks, const std::string& mine) {
  if (const std::string problem = first_problem(ranks, mine); !problem.empty()) throw Failure(problem);
}

}  // namespace trireme
