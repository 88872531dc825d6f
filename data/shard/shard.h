// Token shards: HDF5 files that hold a stretch of the token stream of a corpus, and prove it.
//
// The file: a user block of 4 KiB with our own header (text lines: facts, where the datasets lie, digests), after it a plain HDF5
// file with the datasets `tokens` (u16 where the vocabulary fits, else u32), `document_starts` (i64, indices into tokens,
// increasing) and `page_digests` (u64, XXH3 of each 64 KiB of the tokens' bytes), others after them if a shard has more to say
// (provenance.h), and the facts once more as attributes for HDF5's tools. Reading needs the header and pread alone; libhdf5 sees
// the file only in verify(), after every byte of it has matched a digest.
//
// Parts that a shard may have, each with lines of its own at the end of the header: a `loss_mask` (u8, bits: loss_mask.h), the
// digests of whose 4 KiB follow those of the tokens in page_digests; and rows, in which its documents are packed (packing.h).
//
// What is wrong with a file is a DataError that names it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/shard/number_table.h"
#include "data/shard/shard_file.h"
#include "data/shard/shard_header.h"

namespace trireme {

// A dataset of one dim that not every shard has, under a digest of its own.
struct ShardDataset {
  std::string name;
  Hdf5Type type;
  std::span<const std::byte> bytes;
};

// Parts that only some shards have.
struct ShardParts {
  std::span<const uint8_t> trained = {};  // of each token 1, or 0 if it is not a target; none: all are
  int64_t trained_bytes = 0;              // with them: the targets decode to so many bytes
  int64_t row = 0;                        // packed, with `trained`: no document lies in two rows of so many tokens; 0: not packed
  std::vector<ShardDataset> more = {};
};

// Writes `path`; to sync it and to commit_file is the caller's. Tokens are in [0, vocab); starts increase strictly and are in [0,
// tokens).
void write_shard(const std::string& path, const ShardFacts& facts, std::span<const int32_t> tokens,
                 std::span<const int64_t> document_starts, const ShardParts& parts = {});

// Name of a file in a directory whose shards are getting their names (build_journal.h): they are not read then, as some may be
// another corpus's.
inline constexpr const char* kRenamingNote = ".renaming.json";

// A shard whose header somebody has read.
struct KnownShard {
  std::string path;
  std::string header;  // the first bytes of the file, without zeros at the end
  int64_t file_bytes;
};

class ShardReader {
 public:
  // Reads and checks the header; all else is checked when it is first used.
  explicit ShardReader(const std::string& path);
  // Opens the file when it is first used: DataError then if it has another header.
  explicit ShardReader(const KnownShard& known);
  KnownShard known() const;

  const std::string& path() const { return state_->file.path(); }
  const ShardFacts& facts() const { return header_.facts; }
  int64_t tokens() const { return header_.tokens; }
  int64_t file_bytes() const { return header_.file_bytes; }
  int64_t documents() const { return header_.documents; }  // that begin here
  std::vector<int64_t> document_starts() const;            // of all of them
  // Of the documents that begin after token `begin` and before `end`.
  std::vector<int64_t> starts_between(int64_t begin, int64_t end) const;
  // Tokens [begin, end) of the document of this number. -1: those in front of the first, of a document that another shard
  // begins.
  struct TokenRange {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
    bool operator==(const TokenRange&) const = default;
  };
  TokenRange document(int64_t number) const;
  TokenRange content(int64_t number) const;           // likewise, without what fills a packed row after its last piece
  int64_t document_at(int64_t token) const;           // the number of the document that holds it
  int64_t first_document() const;                     // 0, or -1 where there are such tokens
  uint64_t digest() const { return header_.digest; }  // of the whole content, without the file's name
  bool has_loss_mask() const { return header_.loss_mask.has_value(); }
  int64_t trained_tokens() const;                          // that are targets: all without a loss mask
  int64_t trained_bytes() const;                           // they decode to so many
  int64_t row() const { return header_.row.value_or(0); }  // 0: documents are not packed in rows

  // tokens[begin, begin + out.size()). A page is checked against its digest when it is first touched, each token against the
  // vocabulary always. From several threads at once, if wanted.
  void read(int64_t begin, std::span<int32_t> out) const;

  // Tokens [begin, end), or what the loss mask says of them, will be read soon: the disk may begin to bring their pages. Waits for
  // none of them, though for room in the disk's queue where that is full.
  void advise(int64_t begin, int64_t end) const;
  void advise_trained(int64_t begin, int64_t end) const;

  // The bytes of such a dataset of write_shard's `more`, checked against their digest; nullopt: the shard has none of that name.
  std::optional<std::vector<std::byte>> read_more(std::string_view name, Hdf5Type type) const;

  // Reads 1 for each of tokens [begin, begin + out.size()) that is a target, else 0. Checked as tokens are.
  void read_trained(int64_t begin, std::span<uint8_t> out) const;
  int64_t count_trained(int64_t begin, int64_t end) const;  // of tokens [begin, end)

  // Pages under a digest of their own, and one of them read again: returns its bytes. DataError if it is damaged by now; whoever
  // reads it next then checks it, too. From any thread.
  int64_t pages() const { return pages_of(header_); }
  int64_t check_page(int64_t page) const;
  int64_t check_tables() const;  // likewise all document starts and page digests

  // Reads every byte of the file: digests, tokens, and that libhdf5 finds in it what the header says.
  void verify() const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  // A dataset under page digests.
  struct Paged {
    const char* name;
    int64_t offset, bytes, page, first_page, tokens_per_page;  // page: bytes
  };
  Paged paged_tokens() const;
  Paged paged_mask() const;
  struct alignas(8) PageBuffer : std::array<std::byte, kTokenPage> {};
  const std::byte* read_page(const Paged& data, int64_t begin, int64_t end, PageBuffer& buffer) const;
  void advise_pages(const Paged& data, int64_t begin, int64_t end) const;
  std::vector<uint8_t> read_mask(int64_t begin, int64_t end) const;
  std::vector<std::byte> read_whole(const ShardHeader::More& more) const;
  void check_rest() const;
  void check_container() const;

  // A bit for each page, of which none is set at first.
  class PageBits {
   public:
    bool has(int64_t page) const { return words_ && (word(page).load(std::memory_order_relaxed) & bit(page)) != 0; }
    bool set(int64_t page) { return (word(page).fetch_or(bit(page), std::memory_order_relaxed) & bit(page)) == 0; }  // it was not
    void clear(int64_t page) { word(page).fetch_and(~bit(page), std::memory_order_relaxed); }
    void take(int64_t pages) { words_ = std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>((pages + 63) / 64)); }

   private:
    std::atomic<uint64_t>& word(int64_t page) const { return words_[static_cast<size_t>(page / 64)]; }
    static uint64_t bit(int64_t page) { return uint64_t{1} << page % 64; }
    std::unique_ptr<std::atomic<uint64_t>[]> words_;
  };
  struct State {
    explicit State(const std::string& path) : file(path) {}
    State(const std::string& path, ShardFile::Identity wanted) : file(path, wanted) {}
    ShardFile file;
    std::optional<NumberTable> starts, digests;  // there once the header is read
    std::once_flag touched;
    PageBits advised, checked;
  };
  void take(ShardHeader header);
  State& touched() const;  // with bits of the pages

  std::unique_ptr<State> state_;
  ShardHeader header_{};
};

}  // namespace trireme
