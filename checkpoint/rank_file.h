// One rank's file: written under a temporary name with our own writes, each byte of it covered by a digest, and read back
// piece by piece. libhdf5 makes the container and never reads one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/io.h"
#include "checkpoint/manifest.h"
#include "parallel/tensor_slice.h"

namespace trireme {

TensorRegion box_of(const TensorSlice& slice);

// What `slices` are, by name: shape, dtype and the digest of the elements that they hold (the whole tensor's, if they hold all of
// it; shares of several ranks add up). No pieces yet. Throws Error for slices that are not on Place::cpu or leave their tensor.
std::vector<TensorEntry> describe(const std::vector<TensorSlice>& slices);

// Writes shard-RRRRR.h5 of `rank` into `directory` and returns what it adds to a manifest: describe(slices) with a piece for each
// slice, and the file, of which there is none without slices. File and name are durable then. Each page is read, digested and
// written once. CheckpointError when the disk refuses, or for a number that is none if all are to be `finite`.
Manifest write_rank_file(const Io& io, const std::string& directory, int rank, const std::vector<TensorSlice>& slices,
                         bool finite = false);

// Reads every byte of what write_rank_file has written, from the disk itself where the system lets go of its copy, and holds it
// against its digest.
void verify_part(const Io& io, const std::string& directory, const Manifest& part);

// The files of `manifest` that are in `directory`, with their pieces: verify_part takes it.
Manifest part_in(const std::string& directory, const Manifest& manifest);
Manifest only_file(const Manifest& manifest, const std::string& name);  // this one, likewise

// Whether others read the same files on this node: the system's cache then keeps what was read once.
enum class Reader { alone, one_of_many };
struct OtherReaders {
  std::set<std::string> tensors{};  // names of what other ranks read
  Reader reader = Reader::alone;
};

// Fills `slices` from a checkpoint, however either is cut, and checks every byte read against its digest, and the elements against
// their tensor's. CheckpointError, before a byte is moved, when the tensors differ in name, shape or dtype; all differences at
// once.
void read_slices(const Io& io, const std::string& directory, const Manifest& manifest, const std::vector<TensorSlice>& slices,
                 const OtherReaders& others = {});

// One whole tensor, into memory of its shape and dtype on Place::cpu.
void read_tensor(const Io& io, const std::string& directory, const Manifest& manifest, const TensorEntry& tensor, Tensor into);

// Reads every byte of every file and holds it against its digest.
void verify_files(const Io& io, const std::string& directory, const Manifest& manifest);

// Of the bytes of `file` in `extents`, read back.
uint64_t container_digest(const IoFile& file, const std::vector<Extent>& extents);

// Only that the files are there and of the right size: cheap.
void verify_sizes(const Io& io, const std::string& directory, const Manifest& manifest);

}  // namespace trireme
