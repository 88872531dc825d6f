#include "data/shard/shard.h"

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/error.h"

namespace trireme {

void ShardReader::fail(const std::string& what) const { throw DataError(path() + ": " + what); }

ShardReader::ShardReader(const std::string& path) : file_(File::open_to_read(path)) {
  const std::filesystem::path note = std::filesystem::path(path).parent_path() / kRenamingNote;
  if (std::filesystem::exists(note))
    fail("its directory's shards are half renamed (" + note.string() + "): run the same `trireme data build` or `import` again");
  const int64_t size = file_.size();
  std::string block(static_cast<size_t>(std::min(size, kShardUserBlock)), '\0');
  file_.read_at(block.data(), static_cast<int64_t>(block.size()), 0);
  header_ = read_user_block(path, block, size);
  const ShardHeader& h = header_;

  starts_.resize(static_cast<size_t>(h.documents));
  file_.read_at(starts_.data(), h.documents * 8, h.starts_offset);
  if (trireme::digest(starts_.data(), h.documents * 8) != h.starts_digest)
    fail("the document starts are damaged: their digest does not match");
  for (size_t i = 0; i < starts_.size(); ++i)
    if (starts_[i] < (i == 0 ? 0 : starts_[i - 1] + 1) || starts_[i] >= h.tokens)
      fail(text("document ", i, " starts at ", starts_[i], ": starts must increase and be below ", h.tokens));
  check_rows();
  pages_.resize(static_cast<size_t>(pages_of(h)));
  const auto pages_bytes = static_cast<int64_t>(pages_.size() * 8);
  file_.read_at(pages_.data(), pages_bytes, h.pages_offset);
  if (trireme::digest(pages_.data(), pages_bytes) != h.pages_digest)
    fail("the page digests are damaged: their digest does not match");
  states_ = std::make_unique<std::atomic<PageState>[]>(pages_.size());
}

void ShardReader::check_rows() const {
  auto start = starts_.begin();
  for (int64_t begin = 0; row() > 0 && begin < tokens(); begin += row()) {
    start = std::lower_bound(start, starts_.end(), begin);
    if (start == starts_.end() || *start != begin) fail(text("the row at token ", begin, " begins within a document"));
  }
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
  std::atomic<PageState>& state = states_[static_cast<size_t>(data.first_page + page)];
  if (state.load(std::memory_order_relaxed) == PageState::checked) {
    file_.read_at(buffer.data(), end - begin, data.offset + begin);
    return buffer.data();
  }
  const int64_t count = std::min(data.page, data.bytes - first);
  file_.read_at(buffer.data(), count, data.offset + first);
  if (trireme::digest(buffer.data(), count) != pages_[static_cast<size_t>(data.first_page + page)]) {
    const int64_t token = page * data.tokens_per_page;
    fail(text(data.name, " ", token, " to ", std::min(tokens(), token + data.tokens_per_page) - 1,
              " are damaged: their digest does not match"));
  }
  state.store(PageState::checked, std::memory_order_relaxed);
  return buffer.data() + (begin - first);
}

int64_t ShardReader::check_page(int64_t page) const {
  const bool of_tokens = page < token_pages_of(header_);
  const Paged data = of_tokens ? paged_tokens() : paged_mask();
  const int64_t begin = (page - data.first_page) * data.page, end = std::min(begin + data.page, data.bytes);
  PageBuffer buffer;
  states_[static_cast<size_t>(page)].store(PageState::fresh, std::memory_order_relaxed);
  read_page(data, begin, end, buffer);
  return end - begin;
}

// Whole pages where they are still to be checked. What was read before may have left the page cache since.
void ShardReader::advise_pages(const Paged& data, int64_t begin, int64_t end) const {
  for (int64_t page = begin / data.page; page * data.page < end; ++page) {
    PageState fresh = PageState::fresh;
    const int64_t first = page * data.page, last = std::min(first + data.page, data.bytes);
    if (states_[static_cast<size_t>(data.first_page + page)].compare_exchange_strong(fresh, PageState::advised))
      file_.will_read(last - first, data.offset + first);
    else
      file_.will_read(std::min(last, end) - std::max(first, begin), data.offset + std::max(first, begin));
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
  const auto documents = static_cast<int64_t>(starts_.size());
  require(first_document() <= number && number < documents, text(path(), ": document ", number, " of ", documents));
  return {number < 0 ? 0 : starts_[static_cast<size_t>(number)],
          number + 1 < documents ? starts_[static_cast<size_t>(number + 1)] : tokens()};
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

int64_t ShardReader::document_at(int64_t token) const {
  return std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin() - 1;
}

int64_t ShardReader::first_document() const { return tokens() > 0 && (starts_.empty() || starts_.front() > 0) ? -1 : 0; }

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
  file_.read_at(bytes.data(), count, more.offset);
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
  for (size_t page = 0; page < pages_.size(); ++page) states_[page].store(PageState::fresh, std::memory_order_relaxed);
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
