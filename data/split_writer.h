// SplitWriter: one split's stream of tokens, cut into shards: DIRECTORY/SPLIT-00000.h5, ... They get their names only when all of
// them are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace trireme {

struct SplitSummary {
  std::vector<std::string> shards;  // paths
  int64_t documents = 0, text_bytes = 0, tokens = 0;
};

class SplitWriter {
 public:
  // What it is given outlives it. A shard's tokens are held in memory, 4 bytes each.
  SplitWriter(std::string directory, std::string split, const Tokenizer& tokenizer, int64_t tokens_per_shard,
              SplitSummary& summary);

  // Tokens of a document, all or some; where it ends its end_of_document follows.
  void add(const std::vector<int32_t>& tokens, bool starts, bool ends);
  void begin_document();
  void push(int32_t token);  // in the vocabulary
  void finish();             // the last shard is written
  void commit();             // and all get their names

 private:
  void write();

  const std::string directory_, split_;
  const Tokenizer& tokenizer_;
  const int64_t tokens_per_shard_;
  SplitSummary& summary_;
  std::vector<int32_t> stream_;
  std::vector<int64_t> starts_;
  int64_t text_bytes_ = 0;
};

// ConfigError for numbers that cannot be.
void check_shard_tokens(int64_t tokens_per_shard);
// Makes the directory if need be, without what an earlier writer has left unfinished. DataError when it holds shards of these
// splits, unless they are to be replaced.
void make_room_for_shards(const std::string& directory, const std::vector<std::string>& splits, bool replace);
void remove_shards(const std::string& directory, const std::vector<std::string>& splits);

}  // namespace trireme
