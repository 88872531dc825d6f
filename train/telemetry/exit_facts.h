// ExitFacts: how the last start of a run ended, as its exit.json says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

struct ExitFacts {
  int64_t code = -1, rank = -1, step = -1;
  std::string cause, host, message;
  double time = 0;  // when it was written, in seconds since 1970; 0: unknown
};

// Reads all but the time; what the file does not say keeps its value. nullopt: not such a file.
std::optional<ExitFacts> recorded_exit(const std::string& path);

}  // namespace trireme
