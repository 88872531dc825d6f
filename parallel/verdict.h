// The verdict on ranks that get on no more: which of them the others wait for.
#pragma once

#include <string>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

struct Verdict {
  int64_t rank = -1;   // the culprit; -1: none can be told
  int32_t thread = 0;  // of it, that waits for others; 0: none does
  std::string line;    // what happened, for people
};

// Of the reports of all ranks, taken when they had been silent for a while.
Verdict judge(const std::vector<RankReport>& ranks);

}  // namespace trireme
