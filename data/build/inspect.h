// Contents of shards, for people: sizes, lengths, samples, damage.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/shard/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// One shard, for people and for `data info`.
struct ShardInfo {
  std::string path;
  int64_t file_bytes, tokens, documents;
  ShardFacts facts;
  int64_t trained_tokens, row;  // as ShardReader's
  uint64_t digest;              // likewise
  std::string chat_template;    // "": it has none
};
std::vector<ShardInfo> describe_shards(const std::vector<std::string>& paths);

// Reads every byte of every shard; a shard's problem is empty when it is sound.
struct ShardVerdict {
  std::string path, problem;
  uint64_t digest = 0;  // of all that it holds
};
// `done` hears of the bytes of each that was read, and of all.
std::vector<ShardVerdict> verify_shards(const std::vector<std::string>& paths,
                                        const std::function<void(int64_t, int64_t)>& done = {});

// Tokens of documents, their end_of_document included. What a shard holds of a document that lies in two counts in each for itself,
// and so does each piece of a document that was cut to be packed.
struct DocumentLengths {
  int64_t documents = 0, shortest = 0, median = 0, longest = 0;
  std::array<int64_t, 40> counts{};  // of documents of [2^i, 2^(i + 1)) tokens
};
DocumentLengths document_lengths(const std::vector<std::string>& paths);

// Counts the documents that do not lie in one sample of `context` tokens, as a Corpus cuts samples.
int64_t count_cut_documents(const std::vector<std::string>& paths, int64_t context);

// The text of a document, up to `most` bytes, cut where a character ends.
struct Beginning {
  std::string text;
  bool cut;
};
Beginning beginning_of(const ShardReader& shard, int64_t number, const Tokenizer& tokenizer, int64_t most);

// The text of `count` documents, spread evenly over all, each up to `most` bytes like that. DataError when the
// shards were made with another tokenizer.
struct SampleDocument {
  std::string shard, text;
  int64_t number, tokens;  // of the document, in its shard
  bool cut;
};
std::vector<SampleDocument> sample_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, int64_t count,
                                             int64_t most);

}  // namespace trireme
