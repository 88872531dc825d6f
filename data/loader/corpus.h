// Corpus: the token shards of one split, seen as samples of T inputs and their T targets.
//
// Sample i of a shard covers its tokens [i T, i T + T]. In training the tail of a shard that fills no sample is dropped; with
// keep_tail, for evaluation, the last sample is padded (tokens 0, targets -1), so that every token of a shard but its first is a
// target exactly once. Shards hold whole streams: no sample crosses from one to the next.
//
// With an overlap, samples begin every T - overlap tokens, and the first `overlap` tokens of each but a shard's first are context
// only (targets -1): every token is still a target once, and is predicted from at least `overlap` tokens before it.
//
// Tokens that a shard's loss mask leaves out are not targets. The samples of a shard whose documents are packed are its rows, of
// this context only, whatever the overlap; their last positions have no target. (Elsewhere the first token of a document is one,
// predicted from the end of the document in front of it.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/loader/sample.h"
#include "data/shard/exclusion.h"
#include "data/shard/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

class Corpus {
 public:
  // `paths`: shard files, patterns, or directories of *.h5 (all train or all validation). DataError when a shard is unusable,
  // shards disagree on their tokenizer, or there is not one sample.
  // 0 <= overlap < context. Calls `opened` after each shard.
  Corpus(const std::vector<std::string>& paths, int64_t context, bool keep_tail, int64_t overlap = 0,
         const std::function<void()>& opened = {});
  // Takes shards that somebody has listed and opened. Opens none.
  static Corpus of_known(const std::vector<KnownShard>& shards, int64_t context, bool keep_tail, int64_t overlap = 0);

  int64_t context() const { return cut_.context; }
  int64_t samples() const { return first_samples_.back(); }
  int64_t tokens() const;
  int64_t documents() const;       // that begin in its shards
  int64_t text_bytes() const;      // the tokens decode to so many bytes
  double tokens_per_byte() const;  // of text, of what may be a target
  int64_t targets() const;         // of all samples
  int64_t targets(int64_t sample) const;
  bool padded() const;  // some sample may have fewer targets than its context
  bool packed() const;  // some shard's documents are
  int64_t vocab() const { return shards_.front().facts().vocab; }
  const std::string& fingerprint() const { return shards_.front().facts().tokenizer; }  // the tokenizer's
  uint64_t digest() const;                                                              // of all shards' content, in order
  const std::vector<ShardReader>& shards() const { return shards_; }

  // From now on nothing is predicted in or from these documents: their tokens, and the first token after each, are no targets. All
  // else stays as it is; that no other document attends to them is for document masks to see to. Returns how many of the
  // exclusion's shards are here. DataError when a shard has changed since, or has no such document.
  int64_t exclude(const Exclusion& exclusion);
  int64_t excluded_documents() const;
  uint64_t excluded_digest() const;  // of what is excluded; 0: nothing

  // DataError when the shards were not made with this tokenizer.
  void expect_tokenizer(const Tokenizer& tokenizer) const;

  // One sample into rows of T. document_start[t]: index in the row of the first token of t's document, 0 when that lies before the
  // row or there is no document_mask. positions count from the row's start or, with restart_positions, from such a document start.
  // From several threads at once, if wanted.
  void read(int64_t sample, bool document_mask, bool restart_positions, const SampleRow& row) const;

  // The sample will be read soon: the disk may begin to bring what it takes.
  void advise(int64_t sample) const;

  // Part of a shard's stream that a sample reads.
  struct Window {
    size_t shard;
    SampleWindow part;
  };
  Window window(int64_t sample) const;
  // The samples, from `first` up to but not `last`, that read any of the tokens [begin, end) of a shard.
  struct SampleRange {
    int64_t first, last;
  };
  SampleRange samples_with(size_t shard, int64_t begin, int64_t end) const;

 private:
  explicit Corpus(const SampleCut& cut) : cut_(cut), first_samples_{0} {}
  void add_shards(const auto& all, const std::function<void()>& added);
  void expect_fit(const ShardReader& shard) const;
  void exclude(size_t shard, const std::vector<int64_t>& documents, const std::string& by);
  int64_t predicted(size_t shard, int64_t begin, int64_t end) const;

  SampleCut cut_;
  std::vector<ShardReader> shards_;
  std::vector<int64_t> first_samples_;                        // of each shard, and the number of all
  std::vector<std::vector<int64_t>> excluded_;                // documents of each shard, rising
  std::vector<std::vector<ShardReader::TokenRange>> silent_;  // of each shard, rising: inputs that predict nothing
};

}  // namespace trireme
