// Learns a byte-level BPE vocabulary from text.
//
// The result depends on the text and the options alone, not on the number of threads: of equally frequent pairs the one with the
// lower ids is merged first. Ids: 0..255 the bytes, then the merges in order, end of document, last the other special tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/documents/documents.h"
#include "data/tokenizer/tokenizer_bpe.h"

namespace trireme {

struct TokenizerTraining {
  std::vector<std::string> inputs;  // as list_files takes them
  int64_t vocab;                    // entries wanted, special tokens included: at least the bytes and these
  std::string pattern = "gpt2";     // pattern_named: by which words are cut
  DocumentOptions documents = {};
  // Bytes of text counted, which bounds the memory: of files, of which more gives an evenly spread sample of documents, and as many
  // of standard input, the first.
  int64_t text_limit = 1ll << 30;
  std::vector<std::string> special = {};  // written forms beside kEndOfText, none of which could be learnt from text
  int64_t min_count = 2;                  // pairs seen less often are never merged: little text gives fewer entries than wanted
};

struct TokenizerProgress {
  int64_t bytes_read, bytes_total;  // while counting words
  int64_t entries, vocab;           // while merging
};

struct TokenizerResult {
  Bpe bpe;
  int64_t documents, text_bytes, words, distinct_words, skipped;
  int64_t all_text_bytes;             // text_bytes of these were counted
  std::vector<std::string> problems;  // the first documents lost, and that standard input was not read to its end; one line each
};

// ConfigError for options that cannot be met; DataError when there is no text.
TokenizerResult train_tokenizer(const TokenizerTraining& training, const std::function<void(const TokenizerProgress&)>& progress);

}  // namespace trireme
