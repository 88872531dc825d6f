// runs/NAME/data.jsonl: what a run reads, a line for each step behind which that changed: shards with their digests, weights, what
// is left out, and the numbers that the order of samples follows from. What steps behind a line read, up to the next line's, is in
// that line. A run that goes on from an earlier step takes back the lines of later ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/loader/mixture.h"
#include "train/config/config.h"

namespace trireme {

struct DataRecord {
  struct Shard {
    std::string path, digest;
    bool operator==(const Shard&) const = default;
  };
  struct Source {
    double weight = 1;
    std::vector<Shard> shards;
    bool operator==(const Source&) const = default;
  };
  int64_t after_step = 0;
  int64_t seed = 0, batch = 0, context = 0, microbatch = 0, replicas = 0;
  std::string tokenizer;  // data.tokenizer
  std::vector<std::string> leave_out;
  std::string excluded;  // digest of what data.exclude leaves out; empty: nothing
  std::vector<Source> sources;
  bool operator==(const DataRecord&) const = default;
};

// Of a run of so many replicas from `after_step` on.
DataRecord data_record(const RunConfig& config, const Mixture& mixture, int64_t replicas, int64_t after_step);

// Where the run lies that a directory belongs to: its own, or one of its checkpoints'.
std::string run_of(const std::string& directory);

// All of a run, by their steps; none: it is not recorded. DataError for a damaged one.
std::vector<DataRecord> recorded_data(const std::string& directory);
// What step number `step` reads, or would.
std::optional<DataRecord> recorded_data(const std::string& directory, int64_t step);
// Adds what is read from now on, if it is another than before. DataError when the directory cannot be written.
void keep_record(const std::string& directory, const DataRecord& record);

// Of a run that goes on after step `step` of the one in `directory`: a line for shards or excluded documents that are not those of
// that step. ConfigError with them unless `allow`.
std::vector<std::string> compare_data(const std::string& directory, int64_t step, const DataRecord& now, bool allow);

// The sources of a record, opened. DataError when a shard is not what it was.
std::vector<Corpus> open_recorded(const DataRecord& record);

}  // namespace trireme
