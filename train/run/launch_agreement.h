// Start and end of commands that run on several ranks: one config for all of them, one voice.
#pragma once

#include <exception>
#include <functional>
#include <optional>

#include "parallel/comm.h"
#include "parallel/world.h"
#include "train/config/config.h"

namespace trireme {

// ConfigError if the config cannot run on so many ranks, with the nearest mesh that can. `memory` in
// bytes of a rank; 0 disables that check.
void require_mesh(const RunConfig& config, int64_t ranks, int64_t memory);

struct AgreedConfig {
  std::optional<RunConfig> config;     // nullopt if rank 0 found no valid one, and has printed why
  ExitCode refusal = ExitCode::usage;  // the end of every rank then
};

// The config that rank 0 reads and sends to the others. A process alone throws what `read` throws.
AgreedConfig agree_on_config(const Comm& all, const std::function<RunConfig()>& read);

// Prints the error, calls `leave` and ends all ranks. The first caller ends them; rank 0 is first if
// every rank calls. `config` is nullptr while the mesh is not known.
[[noreturn]] void end_all_ranks(const World& world, const RunConfig* config, const std::exception& error,
                                const std::function<void()>& leave = {});

}  // namespace trireme
