// Costs of saves as `trireme bench save` measures them, for people and as JSON.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "train/cli/bench_table.h"

namespace trireme {

constexpr int64_t kTransfer = 4 << 20;  // bytes of one O_DIRECT write

// Medians of the rounds, in seconds and bytes.
struct SaveCosts {
  double bytes;                  // of a rank's state
  double memcpy, snapshot;       // one copy by memcpy, and by a save
  std::optional<double> direct;  // plain O_DIRECT writes, bytes/s
  double alone, share;           // a save alone, bytes/s; over plain writes
  double committed, committed_beside_steps, wait, step;
  Estimate cost;  // of a save, for the steps
  int64_t rounds, steps, every;
};

void say_costs(const SaveCosts& c, bool copies);  // copies: from memory that memcpy reaches
Json json_of(const SaveCosts& c, bool copies);

}  // namespace trireme
