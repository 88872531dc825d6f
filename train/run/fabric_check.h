// Check of a run's machines before its first step: measures ranks, links and sums, and judges them on rank 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/world.h"
#include "train/config/config.h"
#include "train/health/fabric_findings.h"

namespace trireme {

// How thorough a check is.
struct FabricOrders {
  double products, for_links, for_sums;  // seconds; for_links: of each size
  int64_t copies, memory, disk;          // bytes of a rank; disk: of a host
  std::vector<int64_t> links, sums;      // bytes; a size above the first is lowered where time runs out
  static FabricOrders full() {
    return {.products = 2,
            .for_links = 3,
            .for_sums = 0.3,
            .copies = 64 << 20,
            .memory = 256 << 20,
            .disk = 64 << 20,
            .links = {1 << 20, 64 << 20},
            .sums = {1 << 20, 16 << 20}};
  }
  static FabricOrders brief() {  // a few seconds, at the start of a run
    return {.products = 0.5,
            .for_links = 1,
            .for_sums = 0.1,
            .copies = 16 << 20,
            .memory = 64 << 20,
            .disk = 16 << 20,
            .links = {1 << 20},
            .sums = {1 << 20}};
  }
};

// The ranks that are checked. `config` is nullptr where none is given: then no sizes of a run are known.
struct FabricPlace {
  const World& world;
  const Comm& all;
  const Mesh& mesh;
  Device& device;  // not frozen
  const RunConfig* config;
};

struct FabricReport {
  FabricFacts facts;                    // on rank 0
  std::vector<FabricFinding> findings;  // on rank 0
  double seconds = 0;
  std::vector<std::string> condemned;  // hosts; on every rank
  int64_t condemned_rank = -1;         // the first rank of the first of them that a finding names; likewise
  std::string problems;                // findings that condemn, a line each; likewise
};

// All ranks call it.
FabricReport check_fabric(const FabricPlace& place, const FabricOrders& orders);

// "4 ranks on 1 host are fit, checked in 6.3s"; with findings, how many.
std::string summary_of(const FabricReport& report);

// The short check at the start of a run, before it takes memory: there may be no room for both. MachineError, on every rank, if it
// condemns a host. On rank 0, returns warnings and the summary, a line each.
std::vector<std::string> require_fit_machines(const FabricPlace& place);

// Bytes of the tensor of a rank's average call along an axis, by the plan's traffic; 0: no calls.
int64_t bucket_bytes(const Tally& traffic, const std::string& axis, int64_t ranks);

}  // namespace trireme
