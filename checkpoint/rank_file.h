// One rank's file: written under a temporary name, covered by digests to the last byte, and read
// back piece by piece. libhdf5 creates the container and never reads one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_location.h"
#include "parallel/tensor_slice.h"

namespace trireme {

TensorRegion box_of(const TensorSlice& slice);
std::string file_name_of(int rank);  // "shard-00000.h5"

// Entries of the tensors in `slices`, sorted by name: shape, dtype and the digest of the elements
// that they hold. That is the tensor's digest if they hold all of it; otherwise the shares of ranks
// add up to it. Throws Error for slices that are not on Place::cpu or exceed their tensor.
std::vector<TensorEntry> describe(const std::vector<TensorSlice>& slices);

// Writes shard-RRRRR.h5 of `rank` into `directory`, durably. Returns its part of a manifest:
// describe(slices), and, if there are any slices, the file with a piece for each. Reads,
// digests and writes each page once. CheckpointError if the disk refuses, or for NaN or infinity if
// all elements must be `finite`. Error for tensors that cannot be in a manifest.
Manifest write_rank_file(const Io& io, const std::string& directory, int rank, const std::vector<TensorSlice>& slices,
                         bool finite = false);

// Re-reads every byte that write_rank_file wrote and checks it against its digest; from the disk
// itself if the system drops its cached copy.
void verify_part(const Io& io, const std::string& directory, const Manifest& part);

// The manifest without the files that are not in `directory`, for verify_part.
Manifest part_in(const Io& io, const std::string& directory, const Manifest& manifest);
Manifest only_file(const Manifest& manifest, const std::string& name);  // with this file alone

// Number of readers of the same files on this node: with several, the page cache keeps what was
// read once.
enum class Reader { alone, one_of_many };
struct OtherReaders {
  std::set<std::string> tensors{};  // names of tensors that other ranks read
  Reader reader = Reader::alone;
  ReadingRank rank{};
};

// Fills `slices` from a checkpoint, however either is cut, file by file. Checks every byte read against its
// digest, and the elements against their tensor's. CheckpointError, before anything is read, if
// tensors differ in name, shape or dtype; all differences at once.
void read_slices(const Io& io, const std::string& directory, const Manifest& manifest, const std::vector<TensorSlice>& slices,
                 const OtherReaders& others = {});

// Reads every byte of every file and checks it against its digest.
void verify_files(const Io& io, const std::string& directory, const Manifest& manifest);

// Digest of the bytes of `file` in `extents`, read back.
uint64_t container_digest(const IoFile& file, const std::vector<Extent>& extents);

// Check only that the files exist, by one look at the directory; and that they have the right sizes.
void verify_names(const Io& io, const std::string& directory, const Manifest& manifest);
void verify_sizes(const Io& io, const std::string& directory, const Manifest& manifest);

}  // namespace trireme
