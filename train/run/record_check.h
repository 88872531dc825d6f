// Checks the records beside a run's checkpoints, lineage.jsonl, metrics.jsonl and data.jsonl, against what the checkpoints know of
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct CheckedRecord {
  std::string path;
  int64_t bytes = 0, step = 0;  // so many bytes are those of the checkpoint of this step
  std::string problem;          // "": undamaged
};
// Nothing for a run of an older program, whose checkpoints know no records. Lines after the newest checkpoint are not checked.
std::vector<CheckedRecord> check_records(const std::string& run_directory);

}  // namespace trireme
