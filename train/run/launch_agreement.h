// How commands of several ranks begin and, when something is wrong, end: with one config for all, and one voice.
#pragma once

#include <exception>
#include <functional>
#include <optional>

#include "parallel/comm.h"
#include "parallel/world.h"
#include "train/config/config.h"

namespace trireme {

// ConfigError, with the nearest mesh that can be, when the config cannot run on so many ranks. 0 bytes of memory: not asked.
void require_mesh(const RunConfig& config, int64_t ranks, int64_t memory);

// What rank 0 has read, before anything is taken. The others hear it, or that there is none and why was told: nothing.
std::optional<RunConfig> agree_on_config(const Comm& all, const std::function<RunConfig()>& read);

// Tells, leaves word, ends all ranks. The first to do so ends all: what every rank meets, rank 0 tells.
[[noreturn]] void end_all_ranks(const World& world, const RunConfig& config, const std::exception& error,
                                const std::function<void()>& leave = {});
ExitCode code_of(const std::exception& error);

}  // namespace trireme
