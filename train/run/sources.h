// The corpora that a run reads, and lines that describe them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/loader/mixture.h"
#include "parallel/comm.h"
#include "train/config/config.h"

namespace trireme {

// With the vocabulary and the tokenizer that the config says. These two: called on every rank of `all`; they
// call `opened` after each shard.
Corpus open_corpus(const RunConfig& config, const std::vector<std::string>& paths, const char* key, bool held_out,
                   const Tokenizer* tokenizer, const Comm& all, const std::function<void()>& opened = {});
// Opens the training corpora: all of data.train, or each entry for itself where they have weights.
std::vector<Corpus> open_sources(const RunConfig& config, const Tokenizer* tokenizer, const Comm& all,
                                 const std::function<void()>& opened = {});
// Leaves out the documents that data.exclude names. Returns a line for each of its files.
std::vector<std::string> exclude_documents(const RunConfig& config, std::vector<Corpus>& sources);
// For a run that begins with published weights: a warning when the shards were made with another tokenizer than is published with
// them.
std::vector<std::string> doubt_tokenizer(const RunConfig& config, const Corpus& corpus);
// A line for each of several sources.
std::vector<std::string> describe_sources(const RunConfig& config, const Mixture& mixture);

}  // namespace trireme
