// Directories of checkpoints in a machine's memory: /dev/shm/trireme-UID/TOKEN. RUN/memory holds
// the token and the directory names RUN. So it belongs to this user and to this run directory
// alone, not to a copy of it. Failures to create it are ConfigErrors.
#pragma once

#include <string>
#include <vector>

namespace trireme {

std::string memory_directory(const std::string& token);

std::string memory_token(const std::string& run_directory);  // 16 hex digits; "" if the run has none
void keep_memory_token(const std::string& run_directory, const std::string& token);
void drop_memory_token(const std::string& run_directory);

enum class Owner { nobody, we, another };
Owner owner_of(const std::string& directory, const std::string& run);
void make_memory_directory(const std::string& directory, const std::string& run);

// Memory directories of this run on this machine.
std::vector<std::string> memory_directories_of(const std::string& run_directory);
// Removes a memory directory: its checkpoints and the files of its own. CheckpointError if
// something remains.
void remove_memory_directory(const std::string& directory);
// Removes the memory of runs that are gone or have another directory now. Keeps that of runs whose
// path cannot be reached at the moment. Returns a line for each that held steps of this run.
std::vector<std::string> sweep_memory_directories(const std::string& run_directory);

}  // namespace trireme
