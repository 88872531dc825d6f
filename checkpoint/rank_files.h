// RankFiles: the files of a checkpoint, one open at a time, and their pieces, read against their digests. DamagedCheckpoint names
// the file and, of a piece, the tensor and the MiB where that can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"

namespace trireme {

class RankFiles {
 public:
  // What it is given outlives it.
  RankFiles(const Io& io, const std::string& directory, const Manifest& manifest, Reader reader = Reader::one_of_many)
      : io_(io), directory_(directory), manifest_(manifest), reader_(reader) {}

  const IoFile& open(int64_t index);  // of the size that the manifest says; until another one is
  const FileEntry& entry(int64_t index) const { return manifest_.files[static_cast<size_t>(index)]; }
  // The digests of all pages of a file, which match theirs.
  const std::vector<uint64_t>& pages(int64_t index);

 private:
  const Io& io_;
  const std::string& directory_;
  const Manifest& manifest_;
  Reader reader_;
  std::optional<IoFile> file_;
  int64_t index_ = -1;
  std::map<int64_t, std::vector<uint64_t>> tables_;
};

// The digests of a file's pages as it has them, whatever has become of them.
std::vector<uint64_t> read_page_table(const IoFile& file, const FileEntry& entry);

// All of a piece, into memory of its size.
void read_piece(RankFiles& files, const TensorEntry& tensor, const Piece& piece, std::byte* into);

// Reads a piece through a page of memory at a time, several in parallel, and calls look(page, bytes, begin, count) with what is in
// it. Whether the piece matches its digest is known behind the last of them.
using LookAtPage = std::function<void(size_t page, const std::byte* bytes, int64_t begin, int64_t count)>;
void look_through(RankFiles& files, const TensorEntry& tensor, const Piece& piece, const LookAtPage& look);

// One page of a piece after the other, each checked against its digest.
class PieceReader {
 public:
  PieceReader(RankFiles& files, const TensorEntry& tensor, const Piece& piece) : files_(files), tensor_(tensor), piece_(piece) {}
  void read(std::byte* to, int64_t begin, int64_t count);  // bytes [begin, begin + count) of the piece

 private:
  void load(int64_t page);

  RankFiles& files_;
  const TensorEntry& tensor_;
  const Piece& piece_;
  int64_t page_ = -1;
  std::vector<std::byte> bytes_;
};

[[noreturn]] void report_elements(const std::string& directory, const std::string& tensor);

}  // namespace trireme
