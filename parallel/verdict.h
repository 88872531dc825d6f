// Verdict on ranks that make no progress: finds the rank that the others wait for, and whether the
// evidence is enough to end the run.
#pragma once

#include <string>
#include <vector>

#include "parallel/journal.h"

namespace trireme {

struct Verdict {
  int64_t rank = -1;     // the culprit; -1: unknown
  std::string host{};    // of the culprit alone; "" if it is unknown, or all wait for one another
  int32_t thread = 0;    // its thread that waits for others; 0: none
  std::string line;      // description for the user
  bool awaited = false;  // another rank waits
  bool shared = false;   // no rank is waited for by all: all wait for one another
};

// Judges the reports of all ranks, taken after a period of silence.
Verdict judge(const std::vector<RankReport>& ranks);

enum class Ruling {
  hang,       // the rank could have made progress, and others wait for it
  slow,       // others wait for it, but it has not yet had what it needs
  unawaited,  // no other rank waits, and no disk holds it
};
// Rules on a verdict by what its rank has had of the processors: silence that counts for `limit` seconds
// and, if it computes, as much processor time.
Ruling rule(const Verdict& verdict, const std::vector<RankReport>& ranks, double limit);
bool stopped_or_gone(const RankReport& report);
bool lacks_core(const ProcessorShare& share);  // for most of the silence

}  // namespace trireme
