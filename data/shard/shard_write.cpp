#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "data/shard/loss_mask.h"
#include "data/shard/shard.h"

namespace trireme {

namespace {

// Copies tokens page by page as they lie on disk, and digests each.
template <class Stored>
void write_tokens(File& file, const ShardHeader& header, std::span<const int32_t> tokens, std::vector<uint64_t>& digests) {
  constexpr size_t per_page = kTokenPage / sizeof(Stored);
  std::vector<Stored> page;
  for (size_t at = 0; at < tokens.size(); at += page.size()) {
    const auto part = tokens.subspan(at, std::min(per_page, tokens.size() - at));
    page.assign(part.begin(), part.end());
    const auto bytes = static_cast<int64_t>(page.size() * sizeof(Stored));
    digests.push_back(digest(page.data(), bytes));
    file.write_at(page.data(), bytes, header.tokens_offset + static_cast<int64_t>(at * sizeof(Stored)));
  }
}

void write_mask(File& file, const ShardHeader& header, std::span<const uint8_t> trained, std::vector<uint64_t>& digests) {
  const std::vector<uint8_t> mask = loss_mask_of(trained);
  const auto bytes = static_cast<int64_t>(mask.size());
  for (int64_t at = 0; at < bytes; at += kMaskPage) digests.push_back(digest(mask.data() + at, std::min(kMaskPage, bytes - at)));
  file.write_at(mask.data(), bytes, header.loss_mask->offset);
}

// Copies to the header what the parts say; offsets are not known yet.
void take_parts(ShardHeader& header, const ShardParts& parts) {
  const auto count = static_cast<int64_t>(parts.trained.size());
  require(count == 0 || count == header.tokens, text("a loss mask of ", count, " for ", header.tokens, " tokens"));
  require(parts.row == 0 || (count > 0 && parts.row > 0 && count % parts.row == 0),
          text("rows of ", parts.row, " in a shard of ", header.tokens, " tokens, with a loss mask of ", count));
  const int64_t trained = std::count(parts.trained.begin(), parts.trained.end(), 1);
  if (count > 0) header.loss_mask = {.offset = 0, .trained_tokens = trained, .trained_bytes = parts.trained_bytes};
  if (parts.row > 0) header.row = parts.row;
  for (const ShardDataset& each : parts.more) {
    const auto bytes = static_cast<int64_t>(each.bytes.size());
    header.more.push_back({each.name, each.type, bytes / bytes_of(each.type), 0, digest(each.bytes.data(), bytes)});
  }
}

}  // namespace

void write_shard(const std::string& path, const ShardFacts& facts, std::span<const int32_t> tokens,
                 std::span<const int64_t> document_starts, const ShardParts& parts) {
  const bool word =
      !facts.tokenizer.empty() && facts.tokenizer.size() <= 256 && facts.tokenizer.find_first_of(" \n") == std::string::npos;
  require(word, text("'", facts.tokenizer, "' is not a tokenizer fingerprint"));
  for (const int32_t token : tokens) require(0 <= token && token < facts.vocab, text("token ", token, " of ", facts.vocab));
  ShardHeader header{};
  header.facts = facts;
  header.tokens = static_cast<int64_t>(tokens.size());
  header.token_bytes = facts.vocab <= 65536 ? 2 : 4;
  header.documents = static_cast<int64_t>(document_starts.size());
  take_parts(header, parts);
  const auto datasets = create_hdf5(path, datasets_of(header), attributes_of(header), kShardUserBlock);
  header.tokens_offset = datasets[0].offset;
  header.starts_offset = datasets[1].offset;
  header.pages_offset = datasets[2].offset;
  const size_t others = header.loss_mask ? 4 : 3;  // datasets in front of `more`
  if (header.loss_mask) header.loss_mask->offset = datasets[3].offset;
  for (size_t i = 0; i < parts.more.size(); ++i) header.more[i].offset = datasets[others + i].offset;

  File file = File::open_to_write(path);
  std::vector<uint64_t> digests;
  if (header.token_bytes == 2) {
    write_tokens<uint16_t>(file, header, tokens, digests);
  } else {
    write_tokens<uint32_t>(file, header, tokens, digests);
  }
  if (header.loss_mask) write_mask(file, header, parts.trained, digests);
  file.write_at(document_starts.data(), datasets[1].bytes, header.starts_offset);
  file.write_at(digests.data(), datasets[2].bytes, header.pages_offset);
  for (size_t i = 0; i < parts.more.size(); ++i)
    file.write_at(parts.more[i].bytes.data(), datasets[others + i].bytes, header.more[i].offset);
  header.starts_digest = digest(document_starts.data(), datasets[1].bytes);
  header.pages_digest = digest(digests.data(), datasets[2].bytes);
  header.file_bytes = file.size();
  header.rest_digest = digest_of_rest(file, header);
  const std::string block = user_block(header);
  file.write_at(block.data(), static_cast<int64_t>(block.size()), 0);
}

}  // namespace trireme
