// StepData: the documents that each step of a run has read, or that each step of a config would read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader/data_lookup.h"
#include "train/config/step_ranges.h"
#include "train/run/data_record.h"

namespace trireme {

// Opened sources of some steps of a run.
struct OpenedData {
  DataRecord record;
  int64_t last;  // of its steps
  std::vector<Corpus> sources;
  std::optional<Where> where{};

  OpenedData(DataRecord what, int64_t last_step, std::vector<Corpus> from);
  OpenedData(const OpenedData&) = delete;
  OpenedData& operator=(const OpenedData&) = delete;

  bool leaves_out(int64_t step) const;
};

class StepData {
 public:
  // Opens a run's directory, or a config.
  StepData(const std::string& from, const std::vector<std::string>& set);

  int64_t steps() const { return steps_; }
  const std::vector<DataRecord>& records() const { return records_; }
  // Sources of step number `step`, counted from 1; valid until the next call. DataError if they are not known.
  OpenedData& at(int64_t step);
  // Parses --step; ConfigError for steps that the run does not have.
  StepRange range(const std::string& words) const;

 private:
  int64_t steps_;
  std::vector<DataRecord> records_;
  std::unique_ptr<OpenedData> opened_;
};

// Shards of all sources, one source after the other.
std::vector<const ShardReader*> shards_of(const std::vector<Corpus>& sources);

// The tokenizer that is `given`, or else the `recorded` one. ConfigError, which names the `option` that needs it, where there is
// neither, DataError for another one than the shard's.
std::unique_ptr<Tokenizer> tokenizer_for(const std::string& given, const std::string& recorded, const ShardReader& shard,
                                         const char* option);

}  // namespace trireme
