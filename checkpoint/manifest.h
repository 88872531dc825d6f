// Manifest: what a checkpoint contains and where each byte of it is stored. It is the only part
// that a reader parses; everything else is bytes with a digest. Tensors are described in global
// coordinates, each in one or more pieces, so that any number of ranks can read it.
//
// manifest.json is one JSON object, {"digest": D, "manifest": {...}}. D is the digest of the text
// of the inner object, which is parsed only if it matches.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/chained_digest.h"
#include "checkpoint/io.h"
#include "checkpoint/tensor_region.h"
#include "kernels/tensor.h"

namespace trireme {

struct Piece {
  int64_t file = 0;  // index into Manifest::files
  TensorRegion box;  // in the global tensor; 1 to 4 dims
  int64_t at = 0;    // byte offset in the file; row-major elements from there
  int64_t bytes = 0;
  int64_t first_page = 0;  // index of this piece's first digest in the file's page table
  uint64_t digest = 0;     // of the pages' digests
};

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  uint64_t digest = 0;  // of the elements, however they are cut: element_digest
  std::vector<Piece> pieces;
};

struct FileEntry {
  std::string name;  // relative to the checkpoint's directory
  int64_t bytes = 0;
  int64_t pages = 0, pages_at = 0;  // page table: a u64 digest for each 1 MiB page of each piece
  uint64_t pages_digest = 0;
  uint64_t container = 0;  // digest of all bytes outside pieces and page table
};

struct Manifest {
  std::string run, save;  // ids: of the run, kept when it continues, and of this save
  int64_t step = 0;
  std::map<std::string, int64_t> counters;
  std::string config;
  // Files beside the checkpoint as they were at its step, "metrics" and "data": their first bytes. And
  // "corpus": the shards, with their bytes and a digest of their digests. Older manifests have none.
  std::map<std::string, ChainedDigest> records{};
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // sorted by name
};

inline constexpr auto kManifestName = "manifest.json";
inline constexpr int64_t kMostManifestBytes = int64_t{256} << 20;
inline constexpr size_t kMostPieces = size_t{1} << 20;  // of a tensor

const TensorEntry* find_tensor(const Manifest& manifest, const std::string& name);  // nullptr: no such tensor
int64_t bytes_in(const Manifest& manifest);                                         // of all files

// Digests of a state, independent of files and pieces: tensors_digest covers the tensors' names,
// dtypes, shapes and elements, state_digest also the counters.
uint64_t tensors_digest(const std::vector<TensorEntry>& tensors);
std::string state_digest(const std::vector<TensorEntry>& tensors, const std::map<std::string, int64_t>& counters);

// Throws DamagedCheckpoint at the first impossibility: sizes that overflow or exceed their file,
// pieces that overlap or leave a gap, invalid names. A manifest that passes can be read without
// further checks.
void check(const Manifest& manifest);

// Writes and parses the text of manifest.json. DamagedCheckpoint if the text is invalid, its digest
// does not match or check() fails. CheckpointError for another format version, since no older
// checkpoint would help, and for a manifest that is too long to be read again.
std::string write_manifest(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

// Text of one rank's part of a manifest, its files and tensors, for another rank. Not checked,
// since it is incomplete.
Manifest parse_part(const std::string& text);
// Adds a rank's part: digests add up, and pieces are renumbered to the manifest's files.
void add_part(Manifest& manifest, const Manifest& part);

// Loads manifest.json of a checkpoint's directory; errors name it.
Manifest load_manifest(const Io& io, const std::string& directory);
std::string manifest_text(const Io& io, const std::string& directory);  // the same without parsing it

// Bytes [begin, end) of a file.
struct Extent {
  int64_t begin, end;
};
// Sorted extents of each file that pieces and the page table use; and the rest of a file of
// `bytes`, its container.
std::vector<std::vector<Extent>> used_extents(const Manifest& manifest);
std::vector<Extent> gaps_between(std::vector<Extent> used, int64_t bytes);

}  // namespace trireme
