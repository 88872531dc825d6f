// Where a run's checkpoints lie in a machine's memory: /dev/shm/trireme-UID/TOKEN. RUN/memory holds the token and the directory
// names RUN, so that it belongs to this run directory alone, to no copy of it, and to this user. What cannot be made is a
// ConfigError.
#pragma once

#include <string>
#include <vector>

namespace trireme {

std::string memory_directory(const std::string& token);

std::string memory_token(const std::string& run_directory);  // 16 hex digits; "": the run has none
void keep_memory_token(const std::string& run_directory, const std::string& token);
void drop_memory_token(const std::string& run_directory);

enum class Owner { nobody, we, another };
Owner owner_of(const std::string& directory, const std::string& run);
void make_memory_directory(const std::string& directory, const std::string& run);

// Of this run, on this machine.
std::vector<std::string> memory_directories_of(const std::string& run_directory);
// Removes what belongs to runs that are no more, or have another directory by now. Of a run that is out of sight for now, nothing.
void sweep_memory_directories();

}  // namespace trireme
