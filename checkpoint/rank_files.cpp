#include "checkpoint/rank_files.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/digest.h"
#include "checkpoint/piece_table.h"

namespace trireme {

namespace {

// Throws with the name of the tensor and, if the page table is intact, the place of the damage.
[[noreturn]] void report_damage(const IoFile& file, const FileEntry& entry, const TensorEntry& tensor, const Piece& piece,
                                const std::vector<uint64_t>& pages) {
  std::string where;
  const std::vector<uint64_t> table = read_page_table(file, entry);
  if (digest_of_pages(table) == entry.pages_digest)
    for (size_t i = pages.size(); i-- > 0;)
      if (table[static_cast<size_t>(piece.first_page) + i] != pages[i])
        where = text(" in the MiB at byte ", piece.at + static_cast<int64_t>(i) * kPage);
  throw DamagedCheckpoint(text(file.path(), ": tensor ", tensor.name, " does not match its digest", where));
}

[[noreturn]] void report_page(const IoFile& file, const TensorEntry& tensor, int64_t at) {
  throw DamagedCheckpoint(text(file.path(), ": tensor ", tensor.name, " does not match its digest in the MiB at byte ", at));
}

}  // namespace

const IoFile& RankFiles::open(int64_t index) {
  if (file_ && index_ == index) return *file_;
  const FileEntry& entry = manifest_.files[static_cast<size_t>(index)];
  file_.reset();
  IoFile file = IoFile::open_to_read(io_, directory_ + "/" + entry.name);
  if (reader_ == Reader::alone) file.bypass_cache();
  if (const int64_t bytes = file.size(); bytes != entry.bytes)
    throw DamagedCheckpoint(text(file.path(), " is ", bytes, " bytes, its manifest says ", entry.bytes));
  index_ = index;
  return file_.emplace(std::move(file));
}

std::string RankFiles::table_of(int64_t index) {
  const FileEntry& file_entry = entry(index);
  const IoFile& file = open(index);
  if (file_entry.table_bytes > kMostTableBytes)
    throw DamagedCheckpoint(text(file.path(), ": a piece table of ", file_entry.table_bytes, " bytes"));
  std::string table(static_cast<size_t>(file_entry.table_bytes), '\0');
  file.read_at(table.data(), file_entry.table_bytes, file_entry.table_at);
  if (digest(table) != file_entry.table_digest)
    throw DamagedCheckpoint(file.path() + ": its piece table does not match its digest");
  return table;
}

const FileEntry& RankFiles::known(int64_t index) {
  FileEntry& file = manifest_.files[static_cast<size_t>(index)];
  if (file.known) return file;
  const std::string table = table_of(index);
  try {
    parse_piece_table(table, manifest_, file);
  } catch (const DamagedCheckpoint& error) {
    throw DamagedCheckpoint(file_->path() + ": " + error.what());
  }
  return file;
}

void RankFiles::forget(int64_t index) {
  tables_.erase(index);
  FileEntry& file = manifest_.files[static_cast<size_t>(index)];
  if (file.table_bytes == 0) return;  // they were in the manifest
  file.pieces = {};
  file.known = false;
}

const std::vector<uint64_t>& RankFiles::pages(int64_t index) {
  std::vector<uint64_t>& table = tables_[index];
  if (!table.empty() || known(index).pages == 0) return table;
  const IoFile& file = open(index);
  table = read_page_table(file, entry(index));
  if (digest_of_pages(table) != entry(index).pages_digest)
    throw DamagedCheckpoint(file.path() + ": its page digests do not match their digest");
  return table;
}

std::vector<uint64_t> read_page_table(const IoFile& file, const FileEntry& entry) {
  std::vector<uint64_t> table(static_cast<size_t>(entry.pages));
  file.read_at(table.data(), 8 * entry.pages, entry.pages_at);
  return table;
}

void read_piece(RankFiles& files, int64_t index, const Piece& piece, std::byte* into) {
  const IoFile& file = files.open(index);
  std::vector<uint64_t> pages(static_cast<size_t>(pages_of(piece.bytes)));
  for_each_page(piece.bytes, [&](int64_t page, int64_t begin, int64_t count) {
    file.read_at(into + begin, count, piece.at + begin);
    pages[static_cast<size_t>(page)] = digest(into + begin, count);
  });
  if (digest_of_pages(pages) != piece.digest)
    report_damage(file, files.entry(index), tensor_of(files.manifest(), piece), piece, pages);
}

void look_through(RankFiles& files, int64_t index, const Piece& piece, const LookAtPage& look) {
  const IoFile& file = files.open(index);
  std::vector<uint64_t> pages(static_cast<size_t>(pages_of(piece.bytes)));
  for_each_page(piece.bytes, [&](int64_t page, int64_t begin, int64_t count) {
    static thread_local const DiskMemory memory(kPage);
    std::byte* const bytes = memory.data();
    file.read_at(bytes, count, piece.at + begin);
    pages[static_cast<size_t>(page)] = digest(bytes, count);
    look(static_cast<size_t>(page), bytes, begin, count);
  });
  if (digest_of_pages(pages) != piece.digest)
    report_damage(file, files.entry(index), tensor_of(files.manifest(), piece), piece, pages);
}

void PieceReader::read(std::byte* to, int64_t begin, int64_t count) {
  while (count > 0) {
    const int64_t page = begin / kPage, within = begin % kPage, now = std::min(count, kPage - within);
    if (page != page_) load(page);
    std::memcpy(to, bytes_.data() + within, static_cast<size_t>(now));
    to += now, begin += now, count -= now;
  }
}

void PieceReader::load(int64_t page) {
  const uint64_t wanted = files_.pages(index_)[static_cast<size_t>(piece_.first_page + page)];
  const IoFile& file = files_.open(index_);
  const int64_t at = page * kPage;
  bytes_.resize(static_cast<size_t>(std::min(kPage, piece_.bytes - at)));
  file.read_at(bytes_.data(), static_cast<int64_t>(bytes_.size()), piece_.at + at);
  if (digest(bytes_.data(), static_cast<int64_t>(bytes_.size())) != wanted)
    report_page(file, tensor_of(files_.manifest(), piece_), piece_.at + at);
  page_ = page;
}

void report_elements(const std::string& directory, const std::string& tensor) {
  throw DamagedCheckpoint(text(directory, ": the elements of tensor ", tensor, " do not match their digest"));
}

}  // namespace trireme
