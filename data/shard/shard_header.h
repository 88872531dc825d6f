// The header of a token shard (shard.h): text lines with a digest of their own, in 4 KiB in front of the HDF5 file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/shard/hdf5_file.h"

namespace trireme {

inline constexpr int64_t kShardUserBlock = 4096;
inline constexpr int64_t kTokenPage = 64 << 10;  // bytes of tokens under one digest
inline constexpr int64_t kMaskPage = 4 << 10;    // of the loss mask: replicas count the targets of samples that they do not read

struct ShardFacts {
  std::string tokenizer;    // its fingerprint
  int64_t vocab;            // every token is below it
  int64_t end_of_document;  // the token after each document
  int64_t text_bytes;       // the tokens decode to so many bytes
};

// The header of a shard, checked on its own and against the file's size.
struct ShardHeader {
  int64_t file_bytes, tokens, token_bytes, documents;
  ShardFacts facts;
  int64_t tokens_offset, starts_offset, pages_offset;
  uint64_t starts_digest, pages_digest, rest_digest;  // rest: all bytes after the user block and outside the datasets
  struct More {
    std::string name;
    Hdf5Type type;
    int64_t count, offset;
    uint64_t digest;
  };
  std::vector<More> more;  // of write_shard, in its order: lines after the fields

  struct LossMask {
    int64_t offset, trained_tokens, trained_bytes;
  };
  std::optional<LossMask> loss_mask = {};
  std::optional<int64_t> row = {};

  uint64_t digest = 0;  // of all lines, so of all that the shard holds

  void visit(auto& field) {
    field("file_bytes", file_bytes);
    field("tokenizer", facts.tokenizer);
    field("vocab", facts.vocab);
    field("end_of_document", facts.end_of_document);
    field("text_bytes", facts.text_bytes);
    field("tokens", tokens);
    field("token_bytes", token_bytes);
    field("documents", documents);
    field("tokens_offset", tokens_offset);
    field("starts_offset", starts_offset);
    field("pages_offset", pages_offset);
    field("starts_digest", starts_digest);
    field("pages_digest", pages_digest);
    field("rest_digest", rest_digest);
    // A visitor that reads says of each part whether it is there.
    if (field.part("loss_mask_offset", loss_mask)) {
      field("loss_mask_offset", loss_mask->offset);
      field("trained_tokens", loss_mask->trained_tokens);
      field("trained_bytes", loss_mask->trained_bytes);
    }
    if (field.part("row", row)) field("row", *row);
  }
};

std::string user_block(ShardHeader header);

// Backwards, of a file's first bytes, up to 4 KiB of them. DataError that names `path` when they are not such a block, or say what
// cannot be of a file of `file_bytes`.
ShardHeader read_user_block(const std::string& path, std::string_view block, int64_t file_bytes);

int64_t mask_bytes_of(const ShardHeader& header);
int64_t token_pages_of(const ShardHeader& header);
int64_t pages_of(const ShardHeader& header);  // of tokens, then of the loss mask: their digests are in page_digests

// Datasets and attributes as HDF5's tools see them.
std::vector<Hdf5Spec> datasets_of(const ShardHeader& header);
std::vector<int64_t> offsets_of(const ShardHeader& header);  // in the order of datasets_of
std::vector<Hdf5Attribute> attributes_of(const ShardHeader& header);

// Digest of the bytes after the user block that no dataset holds.
uint64_t digest_of_rest(const File& file, const ShardHeader& header);

}  // namespace trireme
