// Problems as text that ranks exchange: if one of them fails, all of them throw.
#pragma once

#include <exception>
#include <string>

#include "parallel/host_collectives.h"

namespace trireme {

// Message of the exception that `work` throws; "" if it throws none.
template <class Work>
std::string problem_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Throws the same problem on every rank if `mine` is one on some rank. All ranks call it.
template <class Failure>
void throw_together(const Comm& ranks, const std::string& mine) {
  if (const std::string problem = first_problem(ranks, mine); !problem.empty()) throw Failure(problem);
}

}  // namespace trireme
