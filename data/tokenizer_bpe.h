// Byte-level byte-pair encoding (Sennrich, Haddow, Birch 2016, on bytes as in GPT-2): what a tokenizer.json holds, and its encoder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"

namespace trireme {

struct Bpe {
  std::vector<std::string> tokens;                       // by id: the bytes each stands for; empty for special tokens
  std::vector<std::pair<int32_t, int32_t>> merges;       // by rank: ids of the two parts; tokens[] holds their concatenation
  std::vector<std::pair<int32_t, std::string>> special;  // ids and written forms, by id; never made by encode
  int32_t end_of_document;                               // one of the special tokens
};

constexpr const char* kEndOfText = "<|endoftext|>";

// DataError when a byte has no token, or a merge makes no token, repeats, or has parts that are no tokens.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(Bpe bpe);

// Hugging Face's tokenizer.json: model BPE, pre-tokenizer and decoder ByteLevel with GPT-2's pattern. Everything else it could
// say (normalizers, other pre-tokenizers, prefixes, dropout, ...) is refused by name with a DataError; so is a malformed file.
// kEndOfText must be among the added tokens: it becomes end_of_document.
Bpe read_tokenizer_json(const std::string& path);
Bpe parse_tokenizer_json(std::string_view json, const std::string& name);  // `name` opens the messages

std::string tokenizer_json(const Bpe& bpe);
void save_tokenizer_json(const Bpe& bpe, const std::string& path);  // replaces the file atomically

}  // namespace trireme
