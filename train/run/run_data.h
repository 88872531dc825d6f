// RunData: what a run reads: tokenizer, training sources and their mixture, validation text and questions.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "parallel/journal.h"
#include "parallel/mesh.h"
#include "train/eval/choices.h"
#include "train/run/resume.h"
#include "train/run/sources.h"

namespace trireme {

// Built in this order.
struct RunData {
  // DataError or ConfigError for what cannot be read. The journal hears when the disk moves, and outlives this.
  RunData(const RunConfig& config, const Comm& all, Journal& journal);

  std::unique_ptr<Tokenizer> tokenizer;  // none where the config names none
  std::vector<Corpus> sources;
  std::vector<std::string> exclusions;  // for people: what data.exclude left out
  Mixture mixture;
  std::optional<Corpus> validation;
  std::vector<ChoiceTask> choices;

  std::vector<const ShardReader*> shards() const;  // of training and validation
  int64_t tokens_of_document() const;              // mean of the sources; 0: no document begins in them
};

// This rank's share of each batch.
LoaderOptions loader_options(const RunConfig& config, const Mesh& mesh);

// Records the data of the steps after `step` in data.jsonl of the run in `directory`. Returns lines for people: differences from
// the data of the steps before, which `resume` allows, and doubts. On rank 0.
struct DataOfSteps {
  const std::string& directory;
  int64_t step, replicas;
  const std::string& run;                                // this run's token
  const std::string& restored_run;                       // of the checkpoint that was restored
  const std::map<std::string, ChainedDigest>& restored;  // its records
  std::map<std::string, ChainedDigest>& records;         // receives those of the steps after it
};
std::vector<std::string> record_data(const RunConfig& config, const RunData& data, const ResumeChoice& resume,
                                     const DataOfSteps& steps);

}  // namespace trireme
