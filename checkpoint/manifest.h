// Manifest: what a checkpoint contains. It has one line for each file and each tensor, whatever the
// number of ranks. Where each byte of a tensor is stored, says a table in each file: piece_table.h.
// Tensors are described in global coordinates, so that any number of ranks can read them.
//
// manifest.json is one JSON object, {"digest": D, "manifest": {...}}. D is the digest of the text
// of the inner object, which is parsed only if it matches.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/chained_digest.h"
#include "checkpoint/io.h"
#include "checkpoint/tensor_region.h"
#include "kernels/tensor.h"

namespace trireme {

// A part of a tensor in a file.
struct Piece {
  int64_t tensor = 0;  // index into Manifest::tensors
  TensorRegion box;    // in the global tensor; 1 to 4 dims
  int64_t at = 0;      // byte offset in the file; row-major elements from there
  int64_t bytes = 0;
  int64_t first_page = 0;  // index of this piece's first digest in the file's page table
  uint64_t digest = 0;     // of the pages' digests
};

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  uint64_t digest = 0;  // of the elements, however they are cut: element_digest
};

struct FileEntry {
  std::string name;  // relative to the checkpoint's directory
  int64_t bytes = 0;
  int64_t table_at = 0, table_bytes = 0;  // the piece table in the file; manifests of version 1 hold the pieces instead
  uint64_t table_digest = 0;
  // The rest is in the piece table.
  bool known = false;               // it has been read
  int64_t pages = 0, pages_at = 0;  // page table: a u64 digest for each 1 MiB page of each piece
  uint64_t pages_digest = 0;
  uint64_t container = 0;  // digest of all bytes outside pieces and both tables
  std::vector<Piece> pieces{};
};

struct Manifest {
  std::string run, save;  // ids: of the run, kept when it continues, and of this save
  int64_t step = 0;
  int64_t ranks = 0;    // that saved it; 0: unknown, in version 1
  uint64_t layout = 0;  // see piece_location.h
  std::map<std::string, int64_t> counters;
  std::string config;
  // Files beside the checkpoint as they were at its step, "metrics" and "data": their first bytes. And
  // "corpus" and "validation": the shards, with their bytes and a digest of their digests. Older manifests have none.
  std::map<std::string, ChainedDigest> records{};
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // sorted by name
};

inline constexpr auto kManifestName = "manifest.json";
inline constexpr int64_t kMostManifestBytes = int64_t{256} << 20;
inline constexpr size_t kMostFiles = size_t{1} << 20;
inline constexpr size_t kMostPieces = size_t{1} << 20;  // of a tensor in a manifest of version 1

// Index of a tensor; -1: no such tensor.
int64_t index_of(const Manifest& manifest, std::string_view name);
const TensorEntry* find_tensor(const Manifest& manifest, std::string_view name);  // nullptr: no such tensor
inline const TensorEntry& tensor_of(const Manifest& manifest, const Piece& piece) {
  return manifest.tensors[static_cast<size_t>(piece.tensor)];
}
int64_t bytes_in(const Manifest& manifest);  // of all files

std::optional<Dtype> dtype_named(std::string_view name);  // of those that a checkpoint holds

// Product of dims and `unit`; -1 if a dim is negative or the product exceeds 62 bits.
int64_t checked_product(const std::vector<int64_t>& dims, int64_t unit);

// Fingerprint of a set of boxes: of how many of them hold each element. It is a sum, so sets on different
// ranks add up. Boxes hold each element of a tensor once if and only if their fingerprint is that of
// the whole tensor, but for a chance of 2^-64.
struct Cover {
  uint64_t corners = 0, elements = 0;
  void add(const TensorRegion& box);
  void add(const Cover& other) { corners += other.corners, elements += other.elements; }
  bool operator==(const Cover&) const = default;
};
// Throws DamagedCheckpoint unless `cover` holds each element of the tensor once.
void check_cover(const TensorEntry& tensor, const Cover& cover);

// Digests of a state, independent of files and pieces: tensors_digest covers the tensors' names,
// dtypes, shapes and elements, state_digest also the counters.
uint64_t tensors_digest(const std::vector<TensorEntry>& tensors);
std::string state_digest(const std::vector<TensorEntry>& tensors, const std::map<std::string, int64_t>& counters);

// Throws DamagedCheckpoint at the first impossibility: sizes that overflow, tables that leave their
// file, invalid names. Of files that are known, also check_pieces; if all are, that pieces overlap or leave a gap.
void check(const Manifest& manifest);
void check_part(const Manifest& part);  // the same for the part of a rank, whose pieces need not hold all elements
// The same for one file that is known: pieces that leave it or their tensor, or overlap in it.
void check_pieces(const Manifest& manifest, const FileEntry& file);

// Writes and parses the text of manifest.json. It holds no pieces; those of version 1 are read. DamagedCheckpoint if the text is
// invalid, its digest does not match or check() fails. CheckpointError for another format version, since no older
// checkpoint would help, and for a manifest that is too long to be read again.
std::string write_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

// Loads manifest.json of a checkpoint's directory; errors name it.
Manifest load_manifest(const Io& io, const std::string& directory);
std::string manifest_text(const Io& io, const std::string& directory);            // the same without parsing it
Manifest parse_manifest_of(const std::string& directory, std::string_view text);  // errors name it

// Bytes [begin, end) of a file.
struct Extent {
  int64_t begin, end;
};
// Sorted extents that a file's pieces and tables use; and the rest of a file of `bytes`, its container.
std::vector<Extent> used_extents(const FileEntry& file);
std::vector<Extent> gaps_between(std::vector<Extent> used, int64_t bytes);

}  // namespace trireme
