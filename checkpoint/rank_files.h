// RankFiles: a checkpoint's files, one open at a time, and their pieces, checked against digests
// when read. DamagedCheckpoint names the file; for a piece, also the tensor and, if known, the MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"

namespace trireme {

class RankFiles {
 public:
  // `io` and `directory` must outlive this.
  RankFiles(const Io& io, const std::string& directory, Manifest manifest, Reader reader = Reader::one_of_many)
      : io_(io), directory_(directory), manifest_(std::move(manifest)), reader_(reader) {}

  const Manifest& manifest() const { return manifest_; }
  const IoFile& open(int64_t index);  // checked to have the manifest's size; valid until another is opened
  const FileEntry& entry(int64_t index) const { return manifest_.files[static_cast<size_t>(index)]; }
  // The entry with its pieces, from the file's piece table unless they are known.
  const FileEntry& known(int64_t index);
  void forget(int64_t index);  // its pieces and pages, to save memory
  // Digests of all pages of a file, verified.
  const std::vector<uint64_t>& pages(int64_t index);

 private:
  std::string table_of(int64_t index);

  const Io& io_;
  const std::string& directory_;
  Manifest manifest_;
  Reader reader_;
  std::optional<IoFile> file_;
  int64_t index_ = -1;
  std::map<int64_t, std::vector<uint64_t>> tables_;
};

// Digests of a file's pages as stored, not verified.
std::vector<uint64_t> read_page_table(const IoFile& file, const FileEntry& entry);

// Reads a whole piece of file `index` into memory of its size.
void read_piece(RankFiles& files, int64_t index, const Piece& piece, std::byte* into);

// Reads a piece page by page, several in parallel, and calls look(page, bytes, begin, count) for
// each. The piece is verified only after the last page.
using LookAtPage = std::function<void(size_t page, const std::byte* bytes, int64_t begin, int64_t count)>;
void look_through(RankFiles& files, int64_t index, const Piece& piece, const LookAtPage& look);

// Reads a piece sequentially and checks each page against its digest.
class PieceReader {
 public:
  PieceReader(RankFiles& files, int64_t index, const Piece& piece) : files_(files), index_(index), piece_(piece) {}
  void read(std::byte* to, int64_t begin, int64_t count);  // bytes [begin, begin + count) of the piece

 private:
  void load(int64_t page);

  RankFiles& files_;
  int64_t index_;
  const Piece& piece_;
  int64_t page_ = -1;
  std::vector<std::byte> bytes_;
};

// Pieces of each tensor, with the indices of their files. They point into `files`, which knows all of them then.
struct PieceInFile {
  int64_t file;
  const Piece* piece;
};
using TensorPieces = std::vector<std::vector<PieceInFile>>;
TensorPieces pieces_by_tensor(RankFiles& files);

// Reads one whole tensor into memory of its shape and dtype on Place::cpu.
void read_tensor(RankFiles& files, const TensorEntry& tensor, const std::vector<PieceInFile>& pieces, Tensor into);

[[noreturn]] void report_elements(const std::string& directory, const std::string& tensor);

}  // namespace trireme
