// Findings from measurements of machines: which host is not fit for a run, and why. Uses no clock, file or message.
#pragma once

#include "train/health/fabric_facts.h"

namespace trireme {

// Each finding names ranks, hosts and the remedy. Rates are compared within ranks of one kind, links within those of one size that
// stay on a host or leave it. The median that a rate is compared with is the higher of two.
std::vector<FabricFinding> judge_fabric(const FabricFacts& facts);

// Findings that a busy machine can cause: measure these again, alone, and keep the better rate before you judge.
std::vector<int64_t> slow_ranks(const FabricFacts& facts);           // by products or copies
std::vector<LinkFacts> slow_links(const FabricFacts& facts);         // below half of the median, a fifth where ranks share cores
double sound_rate(const FabricFacts& facts, const LinkFacts& link);  // from which on such a link is not slow

// Hosts that findings condemn, the first found first.
std::vector<std::string> condemned_hosts(const std::vector<FabricFinding>& findings);

// The finding in one line, with its remedy.
std::string describe(const FabricFinding& finding);

}  // namespace trireme
