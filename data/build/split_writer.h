// SplitWriter: one split's stream of tokens, cut into shards: DIRECTORY/SPLIT-00000.h5, ... They get their names only when all of
// them are written, those of all splits together (build_journal.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "data/build/packing.h"
#include "data/shard/provenance.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct SplitSummary {
  std::vector<std::string> shards;  // paths
  int64_t documents = 0, text_bytes = 0, tokens = 0;
  int64_t trained_tokens = 0;  // that are targets
  // Of packed shards: rows, tokens that only fill them, documents longer than one.
  int64_t rows = 0, filling = 0, cut_documents = 0;
};

// State of a split: whole shards, what has been added, and the number of the file that holds what is in no shard yet; 0:
// nothing is.
struct SplitState {
  std::string split;
  int64_t shards = 0, partial = 0;
  SplitSummary added{};      // without paths; text_bytes and what follows tokens are of whole shards
  DocumentSource source{};   // of the document begun last,
  int64_t tokens_of_it = 0;  // which has so many so far
};

// DIRECTORY/SPLIT-NUMBER.h5
std::string shard_path(const std::string& directory, const std::string& split, int64_t number);

SplitSummary summary_of(const std::string& directory, const SplitState& state);

// Directory and name of a split, and the size of its shards.
struct SplitOptions {
  std::string directory, split;
  int64_t tokens_per_shard;  // held in memory, 4 bytes each
  // 0, or what the documents of about tokens_per_shard tokens are packed into (packing.h): as many rows as they need, in 10 bytes
  // a token.
  int64_t row = 0;
  std::string chat_template = {};  // its name is kept in the shards; "": there is none
};

class SplitWriter {
 public:
  // The tokenizer and the summary outlive it.
  SplitWriter(SplitOptions options, const Tokenizer& tokenizer, SplitSummary& summary);

  // Tokens of a document, all or some, and for each and for the end after them 1, or 0 if it is not a target (none: all are); where
  // the document ends its end_of_document follows. A shard has a loss mask if some token of it is not a target.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> trained, bool starts, bool ends, const DocumentSource& source);
  void begin_document(const DocumentSource& source);
  void push(std::span<const int32_t> tokens, std::span<const uint8_t> trained = {});  // in the vocabulary
  void finish();  // the last shard is written, and all are on disk

  // State for go_on_from(), with all that was added so far on disk. Files of earlier states are the caller's to
  // drop.
  SplitState keep();
  bool can_go_on_from(const SplitState& state) const;  // its files are there, and whole as far as their headers say
  void go_on_from(const SplitState& state);
  void drop(const SplitState& state) const;

 private:
  void begin_shard();
  int64_t room() const;
  void append(std::span<const int32_t> tokens, std::span<const uint8_t> trained);
  void write();
  void pack_stream();
  int64_t trained_bytes() const;
  void write_stream(const std::string& path, int64_t row) const;
  void wait_for_disk();
  std::string partial_path(int64_t number) const;

  const std::string directory_, split_;
  const Tokenizer& tokenizer_;
  const int64_t tokens_per_shard_, row_;
  const std::string chat_template_;
  SplitSummary& summary_;
  std::vector<uint32_t> bytes_of_;  // by token
  bool text_starts_ = false;        // the next token is the document's first
  TokenStretch stream_;
  int64_t text_bytes_ = 0, kept_ = 0;
  int64_t of_document_ = 0;  // tokens of the document that was begun last
  Provenance provenance_;
  DocumentSource source_;  // of the document begun last
  std::vector<std::future<void>> syncs_;
};

// Files of the splits in a directory whose names end so.
std::vector<std::filesystem::path> shards_in(const std::string& directory, const std::vector<std::string>& splits,
                                             const std::string& suffix);
// ConfigError for numbers that cannot be.
void check_shard_tokens(int64_t tokens_per_shard, int64_t row = 0);
void make_directory(const std::string& directory);  // if need be
// DataError when it holds shards of these splits, unless they are to be replaced.
void refuse_shards(const std::string& directory, const std::vector<std::string>& splits, bool replace);
// Removes the unfinished files of an earlier writer.
void remove_unfinished(const std::string& directory, const std::vector<std::string>& splits);

}  // namespace trireme
