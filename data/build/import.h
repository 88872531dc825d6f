// Shards from tokens that other programs have written (token_file.h), token for token.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/build/build.h"
#include "data/build/token_file.h"

namespace trireme {

struct ImportOptions {
  // As list_files takes them, and Megatron's PREFIX of PREFIX.bin. Of directories .bin and .npy; those with an .idx alone if there
  // are such.
  std::vector<std::string> inputs;
  std::string output, split = "train";
  TokenFormat format = TokenFormat::automatic;
  int32_t begin = -1;  // the token that each document begins with, if there is one
  int32_t end = -1;    // the token that ends each document; -1: the tokenizer's end_of_document
  int64_t tokens_per_shard = 1 << 26;
  bool replace = false;  // the split's shards that the output directory holds
};

// Documents start where Megatron's index says; in other files at each `begin` (128000 in llm.c's files of Llama 3), or, without
// one, after each `end` and at the beginning of a file that does not begin with that. No token is added or left out. An unfinished
// build in the output directory is removed, and removed() is called with a message. DataError for a token that the tokenizer does
// not have.
SplitSummary import_shards(const ImportOptions& options, const Tokenizer& tokenizer,
                           const std::function<void(const BuildProgress&)>& progress,
                           const std::function<void(const std::string&)>& removed = {});

}  // namespace trireme
