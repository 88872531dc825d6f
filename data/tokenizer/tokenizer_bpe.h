// Byte-level byte-pair encoding (Sennrich, Haddow, Birch 2016, on bytes as in GPT-2): what a tokenizer.json holds, and its encoder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_words.h"

namespace trireme {

// Order in which pairs are joined.
enum class MergeOrder {
  listed,   // its place in the list
  by_token  // the id of the token it makes; of equals the leftmost pair (tiktoken)
};

struct Bpe {
  std::vector<std::string> tokens;                       // by id: the bytes each stands for; empty for special and unused ones
  std::vector<std::pair<int32_t, int32_t>> merges;       // by rank: ids of the two parts; tokens[] holds their concatenation
  std::vector<std::pair<int32_t, std::string>> special;  // ids and written forms, by id; never made by encode
  int32_t end_of_document;                               // one of the special tokens
  std::vector<std::string> patterns = {patterns::gpt2};  // by which text is cut into words
  MergeOrder order = MergeOrder::listed;
  bool whole_words = false;    // a word that is a token is that token, whatever its merges
  bool compose = false;        // text is brought into Unicode's normal form C first
  std::string name;            // opens the messages about a text that it cannot cut: the file it was read from
  std::vector<int32_t> added;  // tokens that are found in the text before it is cut: the longest first
};

constexpr const char* kEndOfText = "<|endoftext|>";

// DataError when a byte has no token, or a merge makes no token, repeats, or has parts that are no tokens.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(Bpe bpe);

// Hugging Face's tokenizer.json: model BPE, decoder ByteLevel, pre-tokenizer ByteLevel or a sequence of Splits by patterns, of
// Digits, and of it, normalizer NFC or none. Everything else it could say (other normalizers and pre-tokenizers, prefixes,
// dropout, ...) is refused by name with a DataError; so is a malformed file. Added tokens that are special are never made from
// text; the others are found in it. Of the special ones kEndOfText, <|end_of_text|>, </s> or DeepSeek's becomes end_of_document;
// where there is none of these that which a tokenizer_config.json beside it calls eos_token (of a chat model it ends a turn).
Bpe read_tokenizer_json(const std::string& path);

// Files beside a tokenizer.json.
struct TokenizerNeighbours {
  std::string eos_token = {};      // of tokenizer_config.json; "": not said
  std::string sentencepiece = {};  // a tokenizer.model's path; "": there is none
};
// `name` opens the messages.
Bpe parse_tokenizer_json(std::string_view json, const std::string& name, const TokenizerNeighbours& beside = {});
Bpe bpe_of_json(const Json& root, const std::string& name, const TokenizerNeighbours& beside = {});

inline constexpr JsonLimits kTokenizerJson{.bytes = 128 << 20};

std::string tokenizer_json(const Bpe& bpe);
void save_tokenizer_json(const Bpe& bpe, const std::string& path);  // replaces the file atomically

// tiktoken's ranks: lines of a token's bytes in base64 and its id. `encoding` says patterns and special tokens, which the file does
// not: "r50k", "p50k", "cl100k", "o200k", "llama3", "qwen"; "": by the number of ranks. DataError.
Bpe read_tiktoken(const std::string& path, const std::string& encoding = "");
Bpe parse_tiktoken(std::string_view ranks, const std::string& name, const std::string& encoding = "");

}  // namespace trireme
