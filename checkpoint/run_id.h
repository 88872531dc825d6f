// RUN/run.id: the token of a run, 16 hex digits. It is made once, kept over resumes and copied with
// the run. Its checkpoints, records and exit.json carry it.
#pragma once

#include <string>

namespace trireme {

// "": the run has none, as one of an older program. CheckpointError if the file holds anything else.
std::string read_run_id(const std::string& run_directory);
// Writes the id unless the run has one by now, as from another job that began it. Returns the run's. CheckpointError.
std::string first_run_id(const std::string& run_directory, const std::string& id);
void keep_run_id(const std::string& run_directory, const std::string& id);  // CheckpointError

}  // namespace trireme
