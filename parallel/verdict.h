// Verdict on ranks that make no progress: finds the rank that the others wait for.
#pragma once

#include <string>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

struct Verdict {
  int64_t rank = -1;   // the culprit; -1: unknown
  int32_t thread = 0;  // its thread that waits for others; 0: none
  std::string line;    // description for the user
};

// Judges the reports of all ranks, taken after a period of silence.
Verdict judge(const std::vector<RankReport>& ranks);

}  // namespace trireme
