// Write-once HDF5 files of contiguous datasets, as containers of bytes that everybody's tools can open.
//
// create_hdf5 writes the whole structure at once, with the space of every dataset allocated and nothing filled in, and returns
// where each dataset's bytes lie; File (file.h) moves the bytes. libhdf5 neither detects damage nor is it safe on hostile files, so
// a reader keeps offsets and digests of its own (a manifest, or the user block in front of the file) and reads with pread;
// read_hdf5_layout parses a file with libhdf5 and is only for files whose every byte has matched a digest, or which this process
// has just written.
//
// Problems with files are DataErrors that name the file. One dataset per name, all in the root group.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trireme {

// Little-endian on disk. bf16 is a custom float type that h5dump and h5py show as numbers.
enum class Hdf5Type : uint8_t { u8, u16, u32, u64, i32, i64, f32, bf16 };

int64_t bytes_of(Hdf5Type type);
const char* name_of(Hdf5Type type);

struct Hdf5Spec {
  std::string name;  // not empty, without '/'
  Hdf5Type type;
  std::vector<int64_t> shape;  // 1 to 8 dims, each >= 0
};

struct Hdf5Dataset {
  std::string name;
  Hdf5Type type;
  std::vector<int64_t> shape;
  int64_t offset;  // of the first byte in the file; 0 when bytes is 0
  int64_t bytes;
  bool operator==(const Hdf5Dataset&) const = default;
};

// Attribute of the root group; strings are UTF-8.
struct Hdf5Attribute {
  std::string name;
  std::variant<int64_t, std::string> value;
  bool operator==(const Hdf5Attribute&) const = default;
};

struct Hdf5Layout {
  std::vector<Hdf5Dataset> datasets;      // by name
  std::vector<Hdf5Attribute> attributes;  // by name
};

// Makes `path` anew (replacing a file of that name) and returns the datasets in the order of `specs`. A dataset of 4 KiB or more
// starts at a multiple of 4 KiB, in big files of up to 1 MiB. `user_block` bytes (0, or a power of two >= 4096, which then bounds
// the alignment) in front belong to the caller, as a hole until written; HDF5 tools skip them. Nothing is synced.
std::vector<Hdf5Dataset> create_hdf5(const std::string& path, const std::vector<Hdf5Spec>& specs,
                                     const std::vector<Hdf5Attribute>& attributes, int64_t user_block = 0);

// The structure as libhdf5 sees it. Refuses links of any kind but hard, groups, datasets that are not contiguous, have external
// storage or a foreign type, and bytes beyond the end of the file.
Hdf5Layout read_hdf5_layout(const std::string& path);

}  // namespace trireme
