// The judges of judge_fabric(), each of one kind of measurement, and what they share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/health/fabric_facts.h"

namespace trireme {

using FabricFindings = std::vector<FabricFinding>;

void judge_disks(const FabricFacts& facts, FabricFindings& findings);
void judge_software(const FabricFacts& facts, FabricFindings& findings);
void judge_clocks(const FabricFacts& facts, FabricFindings& findings);
void judge_links(const FabricFacts& facts, FabricFindings& findings);
void judge_sums(const FabricFacts& facts, FabricFindings& findings);

constexpr auto kLeaveHostOut = "start without this host";

// Ranks by the value of a field.
using RankGroups = std::map<std::string, std::vector<int64_t>>;
RankGroups ranks_by(const FabricFacts& facts, std::string MachineFacts::*field);

const std::string& host_of(const FabricFacts& facts, int64_t rank);
std::string rank_on_host(const FabricFacts& facts, int64_t rank);  // "rank 3 on gpu-12"

// A finding about ranks and their hosts, without words.
FabricFinding finding_about(const FabricFacts& facts, const char* check, std::vector<int64_t> ranks);

}  // namespace trireme
