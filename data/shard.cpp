#include "data/shard.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/loss_mask.h"
#include "kernels/check.h"
#include "kernels/hex.h"

namespace trireme {

namespace {

constexpr int64_t kUserBlock = 4096;
constexpr std::string_view kMagic = "trireme shard 1 ";  // followed by the digest of the rest of the user block, and a newline
constexpr int64_t kHeaderBegin = static_cast<int64_t>(kMagic.size()) + 17;

uint64_t digest_of(const void* bytes, int64_t count) { return XXH3_64bits(bytes, static_cast<size_t>(count)); }

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

// The lines behind the header's fields; false when one is not as written.
bool parse_more(HeaderReader& reader, ShardHeader& header) {
  while (reader.lines.starts_with("dataset ")) {
    const size_t end = std::min(reader.lines.find('\n'), reader.lines.size());
    if (!parse(reader.lines.substr(0, end), header.more.emplace_back())) return false;
    reader.lines.remove_prefix(std::min(end + 1, reader.lines.size()));
  }
  return true;
}

std::string user_block(ShardHeader header) {
  HeaderWriter writer;
  header.visit(writer);
  std::string body = writer.lines;
  for (const ShardHeader::More& more : header.more) body += line_of(more);
  require(static_cast<int64_t>(body.size()) <= kUserBlock - kHeaderBegin, text("a shard header of ", body.size(), " bytes"));
  body.resize(static_cast<size_t>(kUserBlock - kHeaderBegin), '\0');
  return std::string(kMagic) + hex(digest_of(body.data(), static_cast<int64_t>(body.size()))) + "\n" + body;
}

int64_t pages_of(int64_t bytes, int64_t page = ShardReader::kPage) { return (bytes + page - 1) / page; }

int64_t mask_bytes_of(const ShardHeader& header) { return header.loss_mask ? loss_mask_bytes(header.tokens) : 0; }

int64_t pages_of(const ShardHeader& header) {
  return pages_of(header.tokens * header.token_bytes) + pages_of(mask_bytes_of(header), ShardReader::kMaskPage);
}

struct Range {
  int64_t begin, end;
};

// The bytes behind the user block that no dataset holds.
std::vector<Range> rest_of(const ShardHeader& header) {
  std::vector<Range> taken{{0, kUserBlock},
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

// Copies tokens page by page as they lie on disk, and digests each.
template <class Stored>
void write_tokens(File& file, const ShardHeader& header, std::span<const int32_t> tokens, std::vector<uint64_t>& digests) {
  constexpr size_t per_page = ShardReader::kPage / sizeof(Stored);
  std::vector<Stored> page;
  for (size_t at = 0; at < tokens.size(); at += page.size()) {
    const auto part = tokens.subspan(at, std::min(per_page, tokens.size() - at));
    page.assign(part.begin(), part.end());
    const auto bytes = static_cast<int64_t>(page.size() * sizeof(Stored));
    digests.push_back(digest_of(page.data(), bytes));
    file.write_at(page.data(), bytes, header.tokens_offset + static_cast<int64_t>(at * sizeof(Stored)));
  }
}

void write_mask(File& file, const ShardHeader& header, std::span<const uint8_t> trained, std::vector<uint64_t>& digests) {
  const std::vector<uint8_t> mask = loss_mask_of(trained);
  const auto bytes = static_cast<int64_t>(mask.size());
  for (int64_t at = 0; at < bytes; at += ShardReader::kMaskPage)
    digests.push_back(digest_of(mask.data() + at, std::min(ShardReader::kMaskPage, bytes - at)));
  file.write_at(mask.data(), bytes, header.loss_mask->offset);
}

// What the parts say of themselves; offsets are not known yet.
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
    header.more.push_back({each.name, each.type, bytes / bytes_of(each.type), 0, digest_of(each.bytes.data(), bytes)});
  }
}

}  // namespace

void write_shard(const std::string& path, const ShardFacts& facts, std::span<const int32_t> tokens,
                 std::span<const int64_t> document_starts, const ShardParts& parts) {
  const bool word =
      !facts.tokenizer.empty() && facts.tokenizer.size() <= 256 && facts.tokenizer.find_first_of(" \n") == std::string::npos;
  require(word, text("'", facts.tokenizer, "' is no tokenizer fingerprint"));
  for (const int32_t token : tokens) require(0 <= token && token < facts.vocab, text("token ", token, " of ", facts.vocab));
  ShardHeader header{};
  header.facts = facts;
  header.tokens = static_cast<int64_t>(tokens.size());
  header.token_bytes = facts.vocab <= 65536 ? 2 : 4;
  header.documents = static_cast<int64_t>(document_starts.size());
  take_parts(header, parts);
  const auto datasets = create_hdf5(path, datasets_of(header), attributes_of(header), kUserBlock);
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
  header.starts_digest = digest_of(document_starts.data(), datasets[1].bytes);
  header.pages_digest = digest_of(digests.data(), datasets[2].bytes);
  header.file_bytes = file.size();
  header.rest_digest = digest_of_rest(file, header);
  const std::string block = user_block(header);
  file.write_at(block.data(), static_cast<int64_t>(block.size()), 0);
}

void ShardReader::fail(const std::string& what) const { throw DataError(path() + ": " + what); }

ShardReader::ShardReader(const std::string& path) : file_(File::open_to_read(path)) {
  const std::filesystem::path note = std::filesystem::path(path).parent_path() / kRenamingNote;
  if (std::filesystem::exists(note))
    fail("its directory's shards are half renamed (" + note.string() + "): run the same `trireme data build` or `import` again");
  const int64_t size = file_.size();
  std::string block(static_cast<size_t>(std::min(size, kUserBlock)), '\0');
  file_.read_at(block.data(), static_cast<int64_t>(block.size()), 0);
  if (!block.starts_with(kMagic.substr(0, 14))) fail("is not a Trireme token shard");
  if (!block.starts_with(kMagic)) fail("is a shard of another format version than 1");
  if (size < kUserBlock) fail(text("is truncated: ", size, " bytes do not hold the header"));
  const std::string_view body = std::string_view(block).substr(static_cast<size_t>(kHeaderBegin));
  digest_ = digest_of(body.data(), static_cast<int64_t>(body.size()));
  if (block.substr(kMagic.size(), 17) != hex(digest_) + "\n") fail("the header is damaged: its digest does not match");

  HeaderReader reader{.lines = body};
  header_.visit(reader);
  if (!reader.wrong.empty()) fail("the header is malformed at " + reader.wrong);
  if (!parse_more(reader, header_)) fail("the header is malformed at its dataset " + header_.more.back().name);
  if (reader.lines.find_first_not_of('\0') != std::string_view::npos) fail("the header is malformed at its end");
  const ShardHeader& h = header_;
  if (size < h.file_bytes) fail(text("is truncated: ", size, " of ", h.file_bytes, " bytes"));
  if (size > h.file_bytes) fail(text("has ", size - h.file_bytes, " bytes too many"));
  if (h.token_bytes != (h.facts.vocab <= 65536 ? 2 : 4))
    fail(text("token_bytes = ", h.token_bytes, " does not fit the vocabulary"));
  if (h.facts.vocab < 1 || h.facts.vocab > 2147483647 || h.facts.end_of_document >= h.facts.vocab)
    fail(text("a vocabulary of ", h.facts.vocab, " with end_of_document = ", h.facts.end_of_document, " is impossible"));
  const auto lies_inside = [&](const char* name, int64_t offset, int64_t count, int64_t each) {
    const int64_t room = h.file_bytes - std::max(offset, kUserBlock);
    if (count > 0 && (offset < kUserBlock || room < 0 || count > room / each)) fail(std::string(name) + " lie outside of the file");
  };
  lies_inside("tokens", h.tokens_offset, h.tokens, h.token_bytes);
  lies_inside("document starts", h.starts_offset, h.documents, 8);
  if (h.loss_mask) lies_inside("the loss mask's bits", h.loss_mask->offset, mask_bytes_of(h), 1);
  lies_inside("page digests", h.pages_offset, pages_of(h), 8);
  for (const ShardHeader::More& more : h.more) lies_inside(more.name.c_str(), more.offset, more.count, bytes_of(more.type));

  starts_.resize(static_cast<size_t>(h.documents));
  file_.read_at(starts_.data(), h.documents * 8, h.starts_offset);
  if (digest_of(starts_.data(), h.documents * 8) != h.starts_digest)
    fail("the document starts are damaged: their digest does not match");
  for (size_t i = 0; i < starts_.size(); ++i)
    if (starts_[i] < (i == 0 ? 0 : starts_[i - 1] + 1) || starts_[i] >= h.tokens)
      fail(text("document ", i, " starts at ", starts_[i], ": starts must increase and be below ", h.tokens));
  check_parts();
  pages_.resize(static_cast<size_t>(pages_of(h)));
  const auto pages_bytes = static_cast<int64_t>(pages_.size() * 8);
  file_.read_at(pages_.data(), pages_bytes, h.pages_offset);
  if (digest_of(pages_.data(), pages_bytes) != h.pages_digest) fail("the page digests are damaged: their digest does not match");
  checked_ = std::make_unique<std::atomic<bool>[]>(pages_.size());
}

void ShardReader::check_parts() const {
  const ShardHeader& h = header_;
  if (h.loss_mask && h.loss_mask->trained_tokens > h.tokens)
    fail(text("trained_tokens = ", h.loss_mask->trained_tokens, " of ", h.tokens, " is impossible"));
  if (h.row && (*h.row < 1 || h.tokens % *h.row != 0 || !h.loss_mask))
    fail(text("rows of ", *h.row, " in ", h.tokens, " tokens ", h.loss_mask ? "with" : "without", " a loss mask are impossible"));
  auto start = starts_.begin();
  for (int64_t begin = 0; h.row && begin < h.tokens; begin += *h.row) {
    start = std::lower_bound(start, starts_.end(), begin);
    if (start == starts_.end() || *start != begin) fail(text("the row at token ", begin, " begins within a document"));
  }
}

ShardReader::Paged ShardReader::paged_tokens() const {
  return {.name = "tokens",
          .offset = header_.tokens_offset,
          .bytes = tokens() * header_.token_bytes,
          .page = kPage,
          .first_page = 0,
          .tokens_per_page = kPage / header_.token_bytes};
}

ShardReader::Paged ShardReader::paged_mask() const {
  return {.name = "the loss mask's bits of tokens",
          .offset = header_.loss_mask->offset,
          .bytes = mask_bytes_of(header_),
          .page = kMaskPage,
          .first_page = pages_of(tokens() * header_.token_bytes),
          .tokens_per_page = kMaskPage * 8};
}

// Bytes of the dataset, first <= last.
void ShardReader::check_once(const Paged& data, int64_t first_byte, std::span<const std::byte> read) const {
  const int64_t end_byte = first_byte + std::ssize(read);
  std::vector<std::byte> around;
  for (int64_t page = first_byte / data.page; page * data.page < end_byte; ++page) {
    const auto of_all = static_cast<size_t>(data.first_page + page);
    if (checked_[of_all].load(std::memory_order_relaxed)) continue;
    const int64_t begin = page * data.page, count = std::min(data.page, data.bytes - begin);
    const bool whole = begin >= first_byte && begin + count <= end_byte;  // among what was read
    if (!whole) {
      around.resize(static_cast<size_t>(count));
      file_.read_at(around.data(), count, data.offset + begin);
    }
    if (digest_of(whole ? &read[static_cast<size_t>(begin - first_byte)] : around.data(), count) != pages_[of_all]) {
      const int64_t first = page * data.tokens_per_page, end = std::min(tokens(), first + data.tokens_per_page);
      fail(text(data.name, " ", first, " to ", end - 1, " are damaged: their digest does not match"));
    }
    checked_[of_all].store(true, std::memory_order_relaxed);
  }
}

ShardReader::TokenRange ShardReader::document(int64_t number) const {
  const auto documents = static_cast<int64_t>(starts_.size());
  require(first_document() <= number && number < documents, text(path(), ": document ", number, " of ", documents));
  return {number < 0 ? 0 : starts_[static_cast<size_t>(number)],
          number + 1 < documents ? starts_[static_cast<size_t>(number + 1)] : tokens()};
}

int64_t ShardReader::document_at(int64_t token) const {
  return std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin() - 1;
}

int64_t ShardReader::first_document() const { return tokens() > 0 && (starts_.empty() || starts_.front() > 0) ? -1 : 0; }

namespace {

// u16, of which `out` may be the memory: from its second half on.
void widen(const std::byte* stored, std::span<int32_t> out) {
  std::array<uint16_t, 2048> some;
  for (size_t i = 0; i < out.size(); i += some.size()) {
    const size_t count = std::min(some.size(), out.size() - i);
    std::memcpy(some.data(), stored + 2 * i, 2 * count);
    std::copy_n(some.begin(), count, out.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace

void ShardReader::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  require(0 <= begin && begin <= tokens() && count <= tokens() - begin,
          text("tokens [", begin, ", ", begin + count, ") of ", tokens()));
  if (count == 0) return;
  const int64_t width = header_.token_bytes;
  // Narrow tokens are read into the upper half of `out` and widened from the front: none is overwritten before it is read.
  auto* stored = reinterpret_cast<std::byte*>(out.data()) + count * (4 - width);
  file_.read_at(stored, count * width, header_.tokens_offset + begin * width);
  check_once(paged_tokens(), begin * width, {stored, static_cast<size_t>(count * width)});
  if (width == 2) widen(stored, out);
  const auto vocab = static_cast<uint32_t>(facts().vocab);
  const auto value = [](int32_t token) { return static_cast<uint32_t>(token); };
  uint32_t largest = 0;
  for (const int32_t token : out) largest = std::max(largest, value(token));
  if (largest < vocab) return;
  const auto bad = std::ranges::find_if(out, [&](int32_t token) { return value(token) >= vocab; });
  fail(text("token ", begin + (bad - out.begin()), " is ", value(*bad), ", beyond the vocabulary of ", vocab));
}

std::vector<std::byte> ShardReader::read_whole(const ShardHeader::More& more) const {
  std::vector<std::byte> bytes(static_cast<size_t>(more.count * bytes_of(more.type)));
  const auto count = static_cast<int64_t>(bytes.size());
  file_.read_at(bytes.data(), count, more.offset);
  if (digest_of(bytes.data(), count) != more.digest) fail("its " + more.name + " are damaged: their digest does not match");
  return bytes;
}

std::optional<std::vector<std::byte>> ShardReader::read_more(std::string_view name, Hdf5Type type) const {
  const auto found = std::ranges::find(header_.more, name, &ShardHeader::More::name);
  if (found == header_.more.end()) return std::nullopt;
  if (found->type != type) fail("its " + found->name + " are of type " + name_of(found->type) + ", not " + name_of(type));
  return read_whole(*found);
}

void ShardReader::check_rest() const {
  if (digest_of_rest(file_, header_) != header_.rest_digest) fail("its HDF5 structure is damaged: its digest does not match");
}

void ShardReader::check_container() const {
  const Hdf5Layout layout = read_hdf5_layout(path());
  std::vector<Hdf5Dataset> expected;
  const std::vector<int64_t> offsets = offsets_of(header_);
  for (const Hdf5Spec& spec : datasets_of(header_)) {
    const int64_t bytes = spec.shape[0] * bytes_of(spec.type);
    expected.push_back({spec.name, spec.type, spec.shape, bytes > 0 ? offsets[expected.size()] : 0, bytes});
  }
  std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (layout.datasets != expected || layout.attributes != attributes_of(header_))
    fail("its header and its HDF5 structure disagree");
}

void ShardReader::verify() const {
  check_rest();
  for (size_t page = 0; page < pages_.size(); ++page) checked_[page].store(false, std::memory_order_relaxed);
  std::vector<int32_t> some(static_cast<size_t>(kPage));
  for (int64_t begin = 0; begin < tokens(); begin += static_cast<int64_t>(some.size())) {
    some.resize(static_cast<size_t>(std::min(kPage, tokens() - begin)));
    read(begin, some);
  }
  if (const int64_t trained = count_trained(0, tokens()); trained != trained_tokens())
    fail(text("the loss mask has ", trained, " targets, the header says ", trained_tokens()));
  for (const ShardHeader::More& more : header_.more) read_whole(more);
  check_container();
}

}  // namespace trireme
