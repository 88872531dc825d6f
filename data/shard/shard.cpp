#include "data/shard/shard.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "base/digest.h"
#include "base/error.h"

namespace trireme {

void ShardReader::fail(const std::string& what) const { throw DataError(path() + ": " + what); }

namespace {

// The document starts of a shard of so many tokens: they increase. Where its documents are packed, one begins with each row.
class StartsCheck {
 public:
  StartsCheck(int64_t tokens, int64_t row) : tokens_(tokens), row_(row) {}
  std::string operator()(int64_t first, std::span<const int64_t> starts) {
    if (starts.empty() && row_ > 0 && next_row_ < tokens_) return within(next_row_);
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t number = first + static_cast<int64_t>(i), start = starts[i];
      if (start <= before_ || start >= tokens_)
        return text("document ", number, " starts at ", start, ": starts must increase and be below ", tokens_);
      if (row_ > 0 && start > next_row_) return within(next_row_);
      if (start == next_row_) next_row_ += row_;
      before_ = start;
    }
    return "";
  }

 private:
  static std::string within(int64_t row) { return text("the row at token ", row, " begins within a document"); }

  int64_t tokens_, row_;
  int64_t before_ = -1, next_row_ = 0;
};

// A header as it stands in the file.
std::string in_block(std::string header, int64_t file_bytes) {
  header.resize(static_cast<size_t>(std::min(file_bytes, kShardUserBlock)), '\0');
  return header;
}

}  // namespace

ShardReader::ShardReader(const std::string& path) : state_(std::make_unique<State>(path)) {
  const std::filesystem::path note = std::filesystem::path(path).parent_path() / kRenamingNote;
  if (std::filesystem::exists(note))
    fail("its directory's shards are half renamed (" + note.string() + "): run the same `trireme data build` or `import` again");
  const ShardFile::Use file = state_->file.open();
  take(read_user_block(path, in_block(ShardFile::header_of(*file), file->size()), file->size()));
}

ShardReader::ShardReader(const KnownShard& known)
    : state_(std::make_unique<State>(known.path, ShardFile::Identity{known.file_bytes, trireme::digest(known.header)})) {
  take(read_user_block(known.path, in_block(known.header, known.file_bytes), known.file_bytes));
}

KnownShard ShardReader::known() const {
  return {.path = path(), .header = ShardFile::header_of(*state_->file.open()), .file_bytes = file_bytes()};
}

void ShardReader::take(ShardHeader header) {
  header_ = std::move(header);
  const ShardHeader& h = header_;
  state_->starts.emplace(NumberTable::Dataset{"document starts", h.starts_offset, h.documents, h.starts_digest},
                         StartsCheck(h.tokens, row()));
  state_->digests.emplace(NumberTable::Dataset{"page digests", h.pages_offset, pages_of(h), h.pages_digest}, nullptr);
}

ShardReader::State& ShardReader::touched() const {
  std::call_once(state_->touched, [&] { state_->advised.take(pages()), state_->checked.take(pages()); });
  return *state_;
}

int64_t ShardReader::check_tables() const {
  const ShardFile::Use file = state_->file.open();
  return state_->starts->read_all(*file) + state_->digests->read_all(*file);
}

ShardReader::Paged ShardReader::paged_tokens() const {
  return {.name = "tokens",
          .offset = header_.tokens_offset,
          .bytes = tokens() * header_.token_bytes,
          .page = kTokenPage,
          .first_page = 0,
          .tokens_per_page = kTokenPage / header_.token_bytes};
}

ShardReader::Paged ShardReader::paged_mask() const {
  return {.name = "the loss mask's bits of tokens",
          .offset = header_.loss_mask->offset,
          .bytes = mask_bytes_of(header_),
          .page = kMaskPage,
          .first_page = token_pages_of(header_),
          .tokens_per_page = kMaskPage * 8};
}

// Reads a dataset's bytes [begin, end), which lie in one page: a page that was not touched before is read whole, and checked.
const std::byte* ShardReader::read_page(const Paged& data, int64_t begin, int64_t end, PageBuffer& buffer) const {
  const int64_t page = begin / data.page, first = page * data.page;
  State& state = touched();
  const ShardFile::Use file = state.file.open();
  if (state.checked.has(data.first_page + page)) {
    file->read_at(buffer.data(), end - begin, data.offset + begin);
    return buffer.data();
  }
  const int64_t count = std::min(data.page, data.bytes - first);
  file->read_at(buffer.data(), count, data.offset + first);
  if (trireme::digest(buffer.data(), count) != std::bit_cast<uint64_t>(state.digests->at(*file, data.first_page + page))) {
    const int64_t token = page * data.tokens_per_page;
    fail(text(data.name, " ", token, " to ", std::min(tokens(), token + data.tokens_per_page) - 1,
              " are damaged: their digest does not match"));
  }
  state.checked.set(data.first_page + page);
  return buffer.data() + (begin - first);
}

int64_t ShardReader::check_page(int64_t page) const {
  const bool of_tokens = page < token_pages_of(header_);
  const Paged data = of_tokens ? paged_tokens() : paged_mask();
  const int64_t begin = (page - data.first_page) * data.page, end = std::min(begin + data.page, data.bytes);
  PageBuffer buffer;
  touched().checked.clear(page);
  read_page(data, begin, end, buffer);
  return end - begin;
}

// Whole pages where they are still to be checked. What was read before may have left the page cache since.
void ShardReader::advise_pages(const Paged& data, int64_t begin, int64_t end) const {
  State& state = touched();
  const ShardFile::Use file = state.file.open();
  for (int64_t page = begin / data.page; page * data.page < end; ++page) {
    const int64_t first = page * data.page, last = std::min(first + data.page, data.bytes);
    if (!state.checked.has(data.first_page + page) && state.advised.set(data.first_page + page))
      file->will_read(last - first, data.offset + first);
    else
      file->will_read(std::min(last, end) - std::max(first, begin), data.offset + std::max(first, begin));
  }
}

void ShardReader::advise(int64_t begin, int64_t end) const {
  require(0 <= begin && begin <= end && end <= tokens(), text("tokens [", begin, ", ", end, ") of ", tokens()));
  if (begin < end) advise_pages(paged_tokens(), begin * header_.token_bytes, end * header_.token_bytes);
  advise_trained(begin, end);
}

void ShardReader::advise_trained(int64_t begin, int64_t end) const {
  if (header_.loss_mask && begin < end) advise_pages(paged_mask(), begin / 8, (end + 7) / 8);
}

ShardReader::TokenRange ShardReader::document(int64_t number) const {
  require(first_document() <= number && number < documents(), text(path(), ": document ", number, " of ", documents()));
  const ShardFile::Use file = state_->file.open();
  const int64_t first = std::max<int64_t>(number, 0), last = std::min(number + 2, documents());
  const std::vector<int64_t> starts = state_->starts->between(*file, first, last);
  return {number < 0 ? 0 : starts.front(), number + 1 < documents() ? starts.back() : tokens()};
}

ShardReader::TokenRange ShardReader::content(int64_t number) const {
  const TokenRange all = document(number);
  if (row() == 0 || all.end % row() != 0) return all;
  std::vector<int32_t> tokens(static_cast<size_t>(all.end - all.begin));
  read(all.begin, tokens);
  const auto is_end = [&](size_t i) { return tokens[i] == facts().end_of_document; };
  size_t count = tokens.size();
  while (count > 1 && is_end(count - 1) && is_end(count - 2)) --count;
  return {all.begin, all.begin + static_cast<int64_t>(count)};
}

int64_t ShardReader::document_at(int64_t token) const { return state_->starts->first_above(*state_->file.open(), token) - 1; }

std::vector<int64_t> ShardReader::document_starts() const { return state_->starts->between(*state_->file.open(), 0, documents()); }

std::vector<int64_t> ShardReader::starts_between(int64_t begin, int64_t end) const {
  const ShardFile::Use file = state_->file.open();
  const NumberTable& starts = *state_->starts;
  return starts.between(*file, starts.first_above(*file, begin), starts.first_above(*file, std::max(begin, end - 1)));
}

int64_t ShardReader::first_document() const {
  return tokens() > 0 && (documents() == 0 || state_->starts->first(*state_->file.open()) > 0) ? -1 : 0;
}

namespace {

// Tokens as they are stored, to i32 bits of each; returns the largest.
template <class Stored>
uint32_t widen(const std::byte* stored, std::span<int32_t> out) {
  const auto* from = reinterpret_cast<const Stored*>(stored);  // aligned: in a page's buffer
  Stored largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(from[i]);
    largest = std::max(largest, from[i]);
  }
  return largest;
}

}  // namespace

void ShardReader::read(int64_t begin, std::span<int32_t> out) const {
  const int64_t end = begin + std::ssize(out), width = header_.token_bytes;
  require(0 <= begin && begin <= tokens() && end <= tokens(), text("tokens [", begin, ", ", end, ") of ", tokens()));
  const Paged data = paged_tokens();
  const auto vocab = static_cast<uint32_t>(facts().vocab);
  PageBuffer buffer;
  for (int64_t at = begin; at < end;) {
    const int64_t stop = std::min(end, (at / data.tokens_per_page + 1) * data.tokens_per_page);
    const std::byte* stored = read_page(data, at * width, stop * width, buffer);
    const auto some = out.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(stop - at));
    const uint32_t largest = width == 2 ? widen<uint16_t>(stored, some) : widen<uint32_t>(stored, some);
    if (largest >= vocab) {
      const auto bad = std::ranges::find_if(some, [&](int32_t token) { return static_cast<uint32_t>(token) >= vocab; });
      fail(text("token ", at + (bad - some.begin()), " is ", static_cast<uint32_t>(*bad), ", beyond the vocabulary of ", vocab));
    }
    at = stop;
  }
}

std::vector<std::byte> ShardReader::read_whole(const ShardHeader::More& more) const {
  std::vector<std::byte> bytes(static_cast<size_t>(more.count * bytes_of(more.type)));
  const auto count = static_cast<int64_t>(bytes.size());
  state_->file.open()->read_at(bytes.data(), count, more.offset);
  if (trireme::digest(bytes.data(), count) != more.digest) fail("its " + more.name + " are damaged: their digest does not match");
  return bytes;
}

std::optional<std::vector<std::byte>> ShardReader::read_more(std::string_view name, Hdf5Type type) const {
  const auto found = std::ranges::find(header_.more, name, &ShardHeader::More::name);
  if (found == header_.more.end()) return std::nullopt;
  if (found->type != type) fail("its " + found->name + " are of type " + name_of(found->type) + ", not " + name_of(type));
  return read_whole(*found);
}

void ShardReader::check_rest() const {
  if (digest_of_rest(*state_->file.open(), header_) != header_.rest_digest)
    fail("its HDF5 structure is damaged: its digest does not match");
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
  check_tables();
  check_rest();
  for (int64_t page = 0; page < pages(); ++page) touched().checked.clear(page);
  std::vector<int32_t> some(static_cast<size_t>(kTokenPage));
  for (int64_t begin = 0; begin < tokens(); begin += static_cast<int64_t>(some.size())) {
    some.resize(static_cast<size_t>(std::min(kTokenPage, tokens() - begin)));
    read(begin, some);
  }
  if (const int64_t trained = count_trained(0, tokens()); trained != trained_tokens())
    fail(text("the loss mask has ", trained, " targets, the header says ", trained_tokens()));
  for (const ShardHeader::More& more : header_.more) read_whole(more);
  check_container();
}

}  // namespace trireme
