// Tokenizers as they lie on disk: which kind a file is of, and what its neighbours say.
#pragma once

#include <string>

#include "data/tokenizer/tokenizer_bpe.h"

namespace trireme {

enum class TokenizerKind { bytes, tokenizer_json, vocabulary, sentencepiece, ranks };

struct TokenizerName {
  TokenizerKind kind;
  std::string path, encoding;  // encoding: of ranks, after @; "": not said
};

// Parts of a name that open_tokenizer takes. A .model is SentencePiece's, or ranks as Llama 3's, by its first bytes: DataError
// where it cannot be read.
TokenizerName parse_tokenizer_name(const std::string& name);

// The path of `name` in the directory of `path`.
std::string beside(const std::string& path, const std::string& name);

// The eos_token of a tokenizer_config.json beside `path`, as text or as an object with "content"; "" where nothing does.
// DataError if it is not such a file.
std::string eos_token_beside(const std::string& path);

// A vocab.json or NAME-vocab.json of a byte-level BPE and the merges.txt or NAME-merges.txt beside it, as GPT-2's, whose pattern
// cuts words: all that is special is the end of documents, eos_token_beside or kEndOfText. DataError.
Bpe read_vocabulary(const std::string& path);

}  // namespace trireme
