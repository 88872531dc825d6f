// runs/NAME/data.jsonl: the data of a run, one line for each step after which it changed. A line has shards with their digests,
// weights, exclusions, and the numbers that determine the order of samples. It holds for the steps after it, up to the next line's.
// A run that continues from an earlier step removes the lines of later ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/chained_digest.h"
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

// The record of a run of so many replicas from `after_step` on.
DataRecord data_record(const RunConfig& config, const Mixture& mixture, int64_t replicas, int64_t after_step);

// The run that a directory belongs to: its own, or one of its checkpoints'.
std::string run_of(const std::string& directory);

// All records of a run, by their steps; none: it is not recorded. DataError for a damaged one.
std::vector<DataRecord> recorded_data(const std::string& directory);
// The data that step number `step` reads, or would.
std::optional<DataRecord> recorded_data(const std::string& directory, int64_t step);
// Adds the data that is read from now on, unless it is the same as before. Returns the chain of the file's lines, which begins with
// the run's token. DataError when the directory cannot be written.
ChainedDigest keep_record(const std::string& directory, const DataRecord& record, const std::string& run);
// Why the file does not begin as a checkpoint of run `run` knows it; "": it does.
std::string changed_record(const std::string& directory, const ChainedDigest& expected, const std::string& run);
std::string record_path(const std::string& directory);

// The shards in order: their bytes, and a digest of their digests.
ChainedDigest shards_of(std::span<const Corpus> sources);

// Compares the data of a run that continues after step `step` of the one in `directory` with that step's. Returns a line each for
// other shards and other excluded documents. ConfigError with them unless `allow`.
std::vector<std::string> compare_data(const std::string& directory, int64_t step, const DataRecord& now, bool allow);

// The sources of a record, opened. DataError when a shard is not what it was.
std::vector<Corpus> open_recorded(const DataRecord& record);

}  // namespace trireme
