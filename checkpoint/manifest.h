// Manifest: what a checkpoint holds and where each byte of it lies. The only thing a reader parses; everything else is bytes with a
// digest. Tensors are described in global coordinates, each in one or more pieces, so that any number of ranks can read it.
//
// manifest.json is one JSON object, {"digest": D, "manifest": {...}}: D is the digest of the text of the inner object, and that
// text is looked into only if it matches.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/tensor_region.h"
#include "kernels/tensor.h"

namespace trireme {

struct Piece {
  int64_t file = 0;  // index into Manifest::files
  TensorRegion box;  // of the global tensor; 1 to 4 dims
  int64_t at = 0;    // byte offset in the file; row-major elements from there
  int64_t bytes = 0;
  int64_t first_page = 0;  // of this piece's digests in the file's page table
  uint64_t digest = 0;     // of its pages' digests
};

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  uint64_t digest = 0;  // of the elements, however they are cut: element_digest
  std::vector<Piece> pieces;
};

struct FileEntry {
  std::string name;  // in the checkpoint's directory
  int64_t bytes = 0;
  int64_t pages = 0, pages_at = 0;  // the page table: one u64 digest for each MiB page of each piece
  uint64_t pages_digest = 0;
  uint64_t container = 0;  // digest of all bytes that belong neither to a piece nor to the page table
};

struct Manifest {
  std::string run, save;  // ids: of the run that this continues, of this very save
  int64_t step = 0;
  std::map<std::string, int64_t> counters;
  std::string config;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // sorted by name
};

inline constexpr auto kManifestName = "manifest.json";

const TensorEntry* find_tensor(const Manifest& manifest, const std::string& name);  // nullptr: none of that name
int64_t bytes_in(const Manifest& manifest);                                         // of all files

// Of the tensors' names, dtypes, shapes and elements alone, and of these with the counters: independent of files and pieces.
uint64_t tensors_digest(const std::vector<TensorEntry>& tensors);
std::string state_digest(const std::vector<TensorEntry>& tensors, const std::map<std::string, int64_t>& counters);

// Throws DamagedCheckpoint at the first thing that cannot be: sizes that overflow or leave their file, pieces that overlap or leave
// a hole, names that are not plain. What passes can be read without further care.
void check(const Manifest& manifest);

// The text of manifest.json, and back. Text that is not valid, whose digest does not match or that fails check() is a
// DamagedCheckpoint; another format version is a CheckpointError, for no older checkpoint will do instead.
std::string write_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

// What one rank adds to a manifest, its files and tensors, as text for another rank: not checked, for it is not whole.
Manifest parse_part(const std::string& text);
// Adds a rank's part: digests are sums over ranks, pieces refer to the manifest's files.
void add_part(Manifest& manifest, const Manifest& part);

// manifest.json of a checkpoint's directory; errors name it.
Manifest load_manifest(const Io& io, const std::string& directory);

// Bytes [begin, end) of a file.
struct Extent {
  int64_t begin, end;
};
// Of each file, what pieces and the page table take, sorted; and what lies between `used` in a file of `bytes`: the container.
std::vector<std::vector<Extent>> used_extents(const Manifest& manifest);
std::vector<Extent> gaps_between(std::vector<Extent> used, int64_t bytes);

}  // namespace trireme
