// Where a run's second tier lies: a directory in the node's memory, /dev/shm/trireme-UID/TOKEN. RUN/memory holds the token, and the
// directory names RUN, so that it belongs to this run directory alone, no copy of it, and to this user.
#pragma once

#include <string>

namespace trireme {

// "" when the run has none.
std::string memory_tier(const std::string& run_directory);
// A new one, with this token: 16 hex digits that no other has. ConfigError when the system offers none or another user is in the
// way.
std::string make_memory_tier(const std::string& run_directory, const std::string& token);

// Removes what belongs to runs that are no more, or have another directory by now. Of a run that is out of sight for now, nothing.
void sweep_memory_tiers();

}  // namespace trireme
