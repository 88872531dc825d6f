// From text to token shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/build/encode_pipeline.h"
#include "data/build/split_writer.h"
#include "data/documents/documents.h"
#include "data/shard/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct BuildOptions {
  std::vector<std::string> inputs;             // as list_files takes them
  std::vector<std::string> validation_inputs;  // held out whole, also where `inputs` names them; or, without them,
  double validation_fraction = 0;              // of the documents, by a hash of their text or prompt (hold_out.h); at least one
  std::string output;                          // directory for train-00000.h5, ..., validation-00000.h5, ...; made if need be
  DocumentOptions documents = {};
  int64_t tokens_per_shard = 1 << 26;  // held in memory, 4 bytes each, for both splits
  bool replace = false;                // the shards that the output directory holds
  double keep_every = 30;              // seconds between states from which the same build continues after a kill
  int64_t pack_context = 0;            // documents are packed into rows of so many tokens (packing.h); 0: they are not
  int64_t batch_bytes = kBatchBytes;   // of text that are read together; the shards do not depend on it
};

struct BuildProgress {
  int64_t bytes_read, bytes_total, documents, tokens;
};

struct BuildSummary {
  SplitSummary train, validation;
  int64_t skipped = 0;                // documents lost to problems
  std::vector<std::string> problems;  // the first of them, one line each: file:line: what
};

// Each document's tokens and its end_of_document follow one another in the order of the inputs; a shard is cut after
// tokens_per_shard, wherever that is, unless documents are packed. Of lines with prompts the responses and the tokens that end
// them are targets; each part is encoded separately. The shards depend on inputs, options and tokenizer, not on the number
// of threads, and get their names only when all of them are written. The same build continues one that was killed, and calls
// resumed(), if the files have the same sizes and times; not from standard input. An unfinished build of other shards is removed,
// and restarted() is called with the reason. DataError if a split that was asked for would be empty. A failed build leaves no
// files, except those from which it can continue.
BuildSummary build_shards(const BuildOptions& options, const Tokenizer& tokenizer,
                          const std::function<void(const BuildProgress&)>& progress, const std::function<void()>& resumed = {},
                          const std::function<void(const std::string&)>& restarted = {});

}  // namespace trireme
