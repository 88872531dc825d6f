// Tokens of a tokenizer.json: those added beside the vocabulary, the vocabulary, and the merges between its tokens.
#pragma once

#include <string>

#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_json_members.h"

namespace trireme {

// Fills what `bpe` has of tokens, among them the end of documents, which `eos_token` may name ("": it does not). How text is
// composed is known before. DataError.
void read_json_tokens(const TokenizerJsonMembers& in, const Json& root, const std::string& eos_token, Bpe& bpe);

}  // namespace trireme
