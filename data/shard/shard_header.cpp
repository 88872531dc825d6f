#include "data/shard/shard_header.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/digest.h"
#include "base/error.h"
#include "data/shard/loss_mask.h"

namespace trireme {

namespace {

constexpr std::string_view kMagic = "trireme shard 1 ";  // followed by the digest of the rest of the user block, and a newline
constexpr int64_t kHeaderBegin = static_cast<int64_t>(kMagic.size()) + 17;

template <class Number>
bool parse(std::string_view words, int base, Number& value) {
  const auto [end, problem] = std::from_chars(words.data(), words.data() + words.size(), value, base);
  return problem == std::errc() && end == words.data() + words.size() && value >= 0;
}

// Walks ShardHeader::visit: `name value` lines in that order.
struct HeaderWriter {
  std::string lines{};
  void operator()(const char* name, const std::string& value) { lines += std::string(name) + " " + value + "\n"; }
  void operator()(const char* name, int64_t value) { (*this)(name, std::to_string(value)); }
  void operator()(const char* name, uint64_t value) { (*this)(name, hex(value)); }
  template <class Part>
  bool part(const char*, const std::optional<Part>& value) {
    return value.has_value();
  }
};

struct HeaderReader {
  std::string_view lines;
  std::string wrong{};  // the first field that is not as written

  std::string_view value_of(const char* name) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const size_t length = std::strlen(name);
    if (line.starts_with(name) && line.size() > length + 1 && line[length] == ' ') return line.substr(length + 1);
    if (wrong.empty()) wrong = name;
    return {};
  }
  void operator()(const char* name, std::string& value) { value = value_of(name); }
  void operator()(const char* name, int64_t& value) {
    if (!parse(value_of(name), 10, value) && wrong.empty()) wrong = name;
  }
  void operator()(const char* name, uint64_t& value) {
    if (!parse(value_of(name), 16, value) && wrong.empty()) wrong = name;
  }
  // Made when its first field comes next.
  template <class Part>
  bool part(const char* first, std::optional<Part>& value) {
    if (lines.starts_with(std::string(first) + " ")) value.emplace();
    return value.has_value();
  }
};

// `dataset NAME TYPE COUNT OFFSET DIGEST`
std::string line_of(const ShardHeader::More& more) {
  return text("dataset ", more.name, " ", name_of(more.type), " ", more.count, " ", more.offset, " ", hex(more.digest), "\n");
}

bool parse(std::string_view line, ShardHeader::More& more) {
  std::array<std::string_view, 6> words;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t end = i + 1 < words.size() ? line.find(' ') : line.size();
    if (end == std::string_view::npos || end == 0) return false;
    words[i] = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  constexpr std::array types{Hdf5Type::u8, Hdf5Type::u16, Hdf5Type::u32, Hdf5Type::u64, Hdf5Type::i32, Hdf5Type::i64};
  const auto type = std::ranges::find(types, words[2], [](Hdf5Type each) { return std::string_view(name_of(each)); });
  if (type == types.end()) return false;
  more.name = words[1];
  more.type = *type;
  return parse(words[3], 10, more.count) && parse(words[4], 10, more.offset) && parse(words[5], 16, more.digest);
}

// The lines after the header's fields; false when one is not as written.
bool parse_more(HeaderReader& reader, ShardHeader& header) {
  while (reader.lines.starts_with("dataset ")) {
    const size_t end = std::min(reader.lines.find('\n'), reader.lines.size());
    if (!parse(reader.lines.substr(0, end), header.more.emplace_back())) return false;
    reader.lines.remove_prefix(std::min(end + 1, reader.lines.size()));
  }
  return true;
}

struct Range {
  int64_t begin, end;
};

// The bytes after the user block that no dataset holds.
std::vector<Range> rest_of(const ShardHeader& header) {
  std::vector<Range> taken{{0, kShardUserBlock},
                           {header.tokens_offset, header.tokens_offset + header.tokens * header.token_bytes},
                           {header.starts_offset, header.starts_offset + header.documents * 8},
                           {header.pages_offset, header.pages_offset + pages_of(header) * 8},
                           {header.file_bytes, header.file_bytes}};
  if (header.loss_mask) taken.push_back({header.loss_mask->offset, header.loss_mask->offset + mask_bytes_of(header)});
  for (const ShardHeader::More& more : header.more) taken.push_back({more.offset, more.offset + more.count * bytes_of(more.type)});
  std::sort(taken.begin(), taken.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> rest;
  int64_t end = 0;
  for (const Range& range : taken) {
    if (range.begin > end) rest.push_back({end, range.begin});
    end = std::max(end, range.end);
  }
  return rest;
}

void expect_possible(const ShardHeader& h, int64_t size, const auto& fail) {
  if (size < h.file_bytes) fail(text("is truncated: ", size, " of ", h.file_bytes, " bytes"));
  if (size > h.file_bytes) fail(text("has ", size - h.file_bytes, " bytes too many"));
  if (h.token_bytes != (h.facts.vocab <= 65536 ? 2 : 4))
    fail(text("token_bytes = ", h.token_bytes, " does not fit the vocabulary"));
  if (h.facts.vocab < 1 || h.facts.vocab > 2147483647 || h.facts.end_of_document >= h.facts.vocab)
    fail(text("a vocabulary of ", h.facts.vocab, " with end_of_document = ", h.facts.end_of_document, " is impossible"));
  const auto lies_inside = [&](const char* name, int64_t offset, int64_t count, int64_t each) {
    const int64_t room = h.file_bytes - std::max(offset, kShardUserBlock);
    if (count > 0 && (offset < kShardUserBlock || room < 0 || count > room / each))
      fail(std::string(name) + " lie outside of the file");
  };
  lies_inside("tokens", h.tokens_offset, h.tokens, h.token_bytes);
  lies_inside("document starts", h.starts_offset, h.documents, 8);
  if (h.loss_mask) lies_inside("the loss mask's bits", h.loss_mask->offset, mask_bytes_of(h), 1);
  lies_inside("page digests", h.pages_offset, pages_of(h), 8);
  for (const ShardHeader::More& more : h.more) lies_inside(more.name.c_str(), more.offset, more.count, bytes_of(more.type));
  if (h.loss_mask && h.loss_mask->trained_tokens > h.tokens)
    fail(text("trained_tokens = ", h.loss_mask->trained_tokens, " of ", h.tokens, " is impossible"));
  if (h.row && (*h.row < 1 || h.tokens % *h.row != 0 || !h.loss_mask))
    fail(text("rows of ", *h.row, " in ", h.tokens, " tokens ", h.loss_mask ? "with" : "without", " a loss mask are impossible"));
}

}  // namespace

std::string user_block(ShardHeader header) {
  HeaderWriter writer;
  header.visit(writer);
  std::string body = writer.lines;
  for (const ShardHeader::More& more : header.more) body += line_of(more);
  require(static_cast<int64_t>(body.size()) <= kShardUserBlock - kHeaderBegin, text("a shard header of ", body.size(), " bytes"));
  body.resize(static_cast<size_t>(kShardUserBlock - kHeaderBegin), '\0');
  return std::string(kMagic) + hex(digest(body)) + "\n" + body;
}

ShardHeader read_user_block(const std::string& path, std::string_view block, int64_t size) {
  const auto fail = [&](const std::string& what) { throw DataError(path + ": " + what); };
  if (!block.starts_with(kMagic.substr(0, 14))) fail("is not a Trireme token shard");
  if (!block.starts_with(kMagic)) fail("is a shard of another format version than 1");
  if (size < kShardUserBlock) fail(text("is truncated: ", size, " bytes do not hold the header"));
  const std::string_view body = std::string_view(block).substr(static_cast<size_t>(kHeaderBegin));
  const uint64_t found = digest(body);
  if (block.substr(kMagic.size(), 17) != hex(found) + "\n") fail("the header is damaged: its digest does not match");

  ShardHeader header{};
  HeaderReader reader{.lines = body};
  header.visit(reader);
  if (!reader.wrong.empty()) fail("the header is malformed at " + reader.wrong);
  if (!parse_more(reader, header)) fail("the header is malformed at its dataset " + header.more.back().name);
  if (reader.lines.find_first_not_of('\0') != std::string_view::npos) fail("the header is malformed at its end");
  header.digest = found;
  expect_possible(header, size, fail);
  return header;
}

int64_t mask_bytes_of(const ShardHeader& header) { return header.loss_mask ? loss_mask_bytes(header.tokens) : 0; }

int64_t token_pages_of(const ShardHeader& header) { return (header.tokens * header.token_bytes + kTokenPage - 1) / kTokenPage; }

int64_t pages_of(const ShardHeader& header) { return token_pages_of(header) + (mask_bytes_of(header) + kMaskPage - 1) / kMaskPage; }

uint64_t digest_of_rest(const File& file, const ShardHeader& header) {
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  require(state != nullptr, text("out of memory for a digest"));
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> bytes;
  for (const Range& range : rest_of(header)) {
    for (int64_t at = range.begin; at < range.end; at += static_cast<int64_t>(bytes.size())) {
      bytes.resize(static_cast<size_t>(std::min<int64_t>(range.end - at, 1 << 20)));
      file.read_at(bytes.data(), static_cast<int64_t>(bytes.size()), at);
      XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
    }
  }
  return XXH3_64bits_digest(state.get());
}

std::vector<Hdf5Spec> datasets_of(const ShardHeader& header) {
  const Hdf5Type type = header.token_bytes == 2 ? Hdf5Type::u16 : Hdf5Type::u32;
  std::vector<Hdf5Spec> datasets{{"tokens", type, {header.tokens}},
                                 {"document_starts", Hdf5Type::i64, {header.documents}},
                                 {"page_digests", Hdf5Type::u64, {pages_of(header)}}};
  if (header.loss_mask) datasets.push_back({"loss_mask", Hdf5Type::u8, {mask_bytes_of(header)}});
  for (const ShardHeader::More& more : header.more) datasets.push_back({more.name, more.type, {more.count}});
  return datasets;
}

// In the order of datasets_of.
std::vector<int64_t> offsets_of(const ShardHeader& header) {
  std::vector<int64_t> offsets{header.tokens_offset, header.starts_offset, header.pages_offset};
  if (header.loss_mask) offsets.push_back(header.loss_mask->offset);
  for (const ShardHeader::More& more : header.more) offsets.push_back(more.offset);
  return offsets;
}

std::vector<Hdf5Attribute> attributes_of(const ShardHeader& header) {
  std::vector<Hdf5Attribute> attributes{{"documents", header.documents},
                                        {"end_of_document", header.facts.end_of_document},
                                        {"format", std::string("trireme shard 1")},
                                        {"text_bytes", header.facts.text_bytes},
                                        {"tokenizer", header.facts.tokenizer},
                                        {"tokens", header.tokens},
                                        {"vocab", header.facts.vocab}};
  if (header.row) attributes.push_back({"row", *header.row});
  if (header.loss_mask) attributes.push_back({"trained_tokens", header.loss_mask->trained_tokens});
  std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return attributes;
}

}  // namespace trireme
