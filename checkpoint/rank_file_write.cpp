#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <numeric>

#include "checkpoint/digest.h"
#include "checkpoint/directory_layout.h"
#include "checkpoint/piece_table.h"
#include "checkpoint/rank_file.h"
#include "kernels/finite.h"

namespace trireme {

namespace {

constexpr int64_t kSynced = 256 << 20;  // bytes written through the cache before they are flushed, so that the last sync is short
constexpr auto kPageTable = ":page_digests", kPieceTable = ":pieces";  // no tensors' names: those have no colon

Hdf5Type hdf5_type(Dtype dtype) {
  return dtype == Dtype::f32 ? Hdf5Type::f32 : dtype == Dtype::bf16 ? Hdf5Type::bf16 : Hdf5Type::i32;
}

void require_valid(const TensorSlice& slice) {
  const Tensor& local = slice.local;
  const auto dims = static_cast<size_t>(local.dims());
  require(local.place() == Place::cpu && dims > 0, text("shard ", slice.name, " is not in host memory"));
  require(local.data() != nullptr || local.bytes() == 0, text("shard ", slice.name, " has no memory"));
  require(slice.global_shape.size() == dims && slice.offset.size() == dims,
          text("shard ", slice.name, " of ", local, " cannot be part of a tensor of ", slice.global_shape.size(), " dims"));
  for (size_t d = 0; d < dims; ++d)
    require(slice.offset[d] >= 0 && slice.offset[d] + local.dim(static_cast<int>(d)) <= slice.global_shape[d],
            text("shard ", slice.name, " exceeds its tensor in dim ", d));
}

// Unit of work of a thread: bytes [begin, begin + count) of a slice, whole pages except for its
// last.
struct Portion {
  size_t slice;
  int64_t begin, count;
};

std::vector<Portion> portions_of(const std::vector<TensorSlice>& slices) {
  constexpr int64_t kPortion = 4 * kPage;  // per transfer: 1.5 times as fast as single pages on a disk with 100 us latency
  std::vector<Portion> portions;
  for (size_t i = 0; i < slices.size(); ++i)
    for (int64_t begin = 0, bytes = slices[i].local.bytes(); begin < bytes; begin += kPortion)
      portions.push_back({i, begin, std::min(kPortion, bytes - begin)});
  // Small portions come last: cached writes wait for all direct writes in progress and delay the
  // next.
  std::ranges::stable_sort(portions, std::greater(), &Portion::count);
  return portions;
}

// True if more than one thread is worth its cost.
bool many(const std::vector<Portion>& portions) {
  int64_t bytes = 0;
  for (const Portion& portion : portions) bytes += portion.count;
  return bytes >= 8 * kPage;
}

// For each page of a slice: the digest of its bytes, and its elements' share in the tensor's
// digest.
struct Digests {
  std::vector<uint64_t> pages, shares;

  explicit Digests(const TensorSlice& slice) : pages(static_cast<size_t>(pages_of(slice.local.bytes()))), shares(pages.size()) {}
  uint64_t elements() const { return std::accumulate(shares.begin(), shares.end(), uint64_t{0}); }
};

void digest_elements(const TensorSlice& slice, int64_t page, Digests& digests) {
  const TensorRegion global = whole(slice.global_shape), box = box_of(slice);
  const int64_t unit = bytes_of(slice.local.dtype()), begin = page * kPage, end = std::min(begin + kPage, slice.local.bytes());
  const auto* bytes = static_cast<const std::byte*>(slice.local.data());
  for_each_run(box, {begin / unit, end / unit}, global, box, [&](int64_t first, int64_t local, int64_t n) {
    digests.shares[static_cast<size_t>(page)] += element_digest(bytes + local * unit, slice.local.dtype(), first, n);
  });
}

// Digests of all slices, allocated but not computed.
std::vector<Digests> room_for_digests(const std::vector<TensorSlice>& slices) {
  std::vector<Digests> digests;
  for (const TensorSlice& slice : slices) digests.emplace_back(slice);
  return digests;
}

// Checks the bytes [begin, begin + count) of a slice for NaN and infinity.
void require_finite(const TensorSlice& slice, int64_t begin, int64_t count) {
  const int64_t unit = bytes_of(slice.local.dtype());
  auto* bytes = static_cast<std::byte*>(slice.local.data());
  const int64_t bad = first_not_finite(Tensor(bytes + begin, slice.local.dtype(), Place::cpu, {count / unit}));
  if (bad >= 0)
    throw CheckpointError(text(slice.name, " is not saved: element ", begin / unit + bad, " of its shard is NaN or infinite"));
}

// Entries of the tensors in `slices`, by name, without digests.
std::map<std::string, TensorEntry> tensors_of(const std::vector<TensorSlice>& slices) {
  std::map<std::string, TensorEntry> tensors;
  for (const TensorSlice& slice : slices) {
    require_valid(slice);
    const Dtype dtype = slice.local.dtype();
    const TensorEntry entry{.name = slice.name, .dtype = dtype, .shape = slice.global_shape};
    const TensorEntry& tensor = tensors.try_emplace(slice.name, entry).first->second;
    require(tensor.shape == slice.global_shape && tensor.dtype == dtype,
            text("two shards of ", slice.name, " disagree on the tensor's shape or dtype"));
  }
  return tensors;
}

std::vector<TensorEntry> sorted(std::map<std::string, TensorEntry> tensors) {
  std::vector<TensorEntry> entries;
  for (auto& [name, tensor] : tensors) entries.push_back(std::move(tensor));
  return entries;
}

// Dataset of a slice: the tensor's name, and the slice's offset if it holds only a part.
std::string dataset_name(const TensorSlice& slice) {
  std::string name = slice.name;
  std::replace(name.begin(), name.end(), '/', ':');
  if (box_of(slice) == whole(slice.global_shape)) return name;
  for (size_t d = 0; d < slice.offset.size(); ++d) name += (d == 0 ? "@" : ",") + std::to_string(slice.offset[d]);
  return name;
}

std::vector<Hdf5Dataset> create_container(const Io& io, const std::string& path, const std::vector<TensorSlice>& slices,
                                          const FileEntry& entry) {
  std::vector<Hdf5Spec> specs;
  for (const TensorSlice& slice : slices)
    specs.push_back({.name = dataset_name(slice), .type = hdf5_type(slice.local.dtype()), .shape = box_of(slice).shape});
  specs.push_back({.name = kPageTable, .type = Hdf5Type::u64, .shape = {entry.pages}});
  specs.push_back({.name = kPieceTable, .type = Hdf5Type::u8, .shape = {entry.table_bytes}});
  try {
    return io.create_hdf5(path, specs, {{"format", "trireme checkpoint shard"}});
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
}

// Digests each page while it is in the processor's cache, or before the disk reads it by DMA.
std::vector<Digests> write_portions(IoFile& file, const std::vector<TensorSlice>& slices, const std::vector<Hdf5Dataset>& datasets,
                                    bool finite) {
  file.bypass_cache();
  if (file.bypasses_cache()) file.allocate();
  const std::vector<Portion> portions = portions_of(slices);
  std::vector<Digests> digests = room_for_digests(slices);
  std::atomic<int64_t> written = 0;
  in_parallel(std::ssize(portions), many(portions), [&](int64_t i) {
    const auto& [s, begin, count] = portions[static_cast<size_t>(i)];
    const auto* bytes = static_cast<const std::byte*>(slices[s].local.data());
    for (int64_t page = begin / kPage; page * kPage < begin + count; ++page) {
      const int64_t from = page * kPage, size = std::min(kPage, begin + count - from);
      if (finite) require_finite(slices[s], from, size);
      digest_elements(slices[s], page, digests[s]);
      digests[s].pages[static_cast<size_t>(page)] = digest(bytes + from, size);
    }
    file.write_at(bytes + begin, count, datasets[s].offset + begin);
    const int64_t before = written.fetch_add(count);
    if (!file.bypasses_cache() && before / kSynced != (before + count) / kSynced) file.sync();
  });
  return digests;
}

// The entry of a file with all that is known before it is written.
FileEntry plan_file(const Manifest& part, int rank, const std::vector<TensorSlice>& slices) {
  FileEntry entry{.name = file_name_of(rank), .known = true};
  for (const TensorSlice& slice : slices) {
    entry.pieces.push_back(
        {.tensor = index_of(part, slice.name), .box = box_of(slice), .bytes = slice.local.bytes(), .first_page = entry.pages});
    entry.pages += pages_of(slice.local.bytes());
  }
  entry.table_bytes = room_for_table(part, entry);
  if (entry.table_bytes > kMostTableBytes)
    throw CheckpointError(text(entry.name, " would have ", slices.size(), " pieces, more than can be read again"));
  return entry;
}

void write_table(IoFile& file, const Manifest& part, FileEntry& entry) {
  std::string table = piece_table(part, entry);
  table.resize(static_cast<size_t>(entry.table_bytes), '\n');
  entry.table_digest = digest(table);
  file.write_at(table.data(), entry.table_bytes, entry.table_at);
}

// A state that cannot be a checkpoint is a fault of the program.
void require_possible(const Manifest& part) {
  try {
    check_part(part);
  } catch (const DamagedCheckpoint& error) {
    throw Error(text("the state cannot be saved: ", error.what()));
  }
}

}  // namespace

std::string file_name_of(int rank) {
  const std::string digits = std::to_string(rank);
  return "shard-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".h5";
}

TensorRegion box_of(const TensorSlice& slice) {
  TensorRegion box{.offset = slice.offset, .shape = {}};
  for (int d = 0; d < slice.local.dims(); ++d) box.shape.push_back(slice.local.dim(d));
  return box;
}

std::vector<TensorEntry> describe(const std::vector<TensorSlice>& slices) {
  std::map<std::string, TensorEntry> tensors = tensors_of(slices);
  const std::vector<Portion> portions = portions_of(slices);
  std::vector<Digests> digests = room_for_digests(slices);
  in_parallel(std::ssize(portions), many(portions), [&](int64_t i) {
    const auto& [slice, begin, count] = portions[static_cast<size_t>(i)];
    for (int64_t page = begin / kPage; page * kPage < begin + count; ++page) digest_elements(slices[slice], page, digests[slice]);
  });
  for (size_t i = 0; i < slices.size(); ++i) tensors.at(slices[i].name).digest += digests[i].elements();
  return sorted(std::move(tensors));
}

Manifest write_rank_file(const Io& io, const std::string& directory, int rank, const std::vector<TensorSlice>& slices,
                         bool finite) {
  Manifest part{.run = "", .save = "", .counters = {}, .config = "", .files = {}, .tensors = sorted(tensors_of(slices))};
  require_possible(part);
  if (slices.empty()) return part;
  FileEntry& entry = part.files.emplace_back(plan_file(part, rank, slices));
  const std::string path = directory + "/" + entry.name, temporary = path + kTemporary;
  const std::vector<Hdf5Dataset> datasets = create_container(io, temporary, slices, entry);
  IoFile file = IoFile::open_to_write(io, temporary);
  const std::vector<Digests> digests = write_portions(file, slices, datasets, finite);
  std::vector<uint64_t> pages;
  for (size_t i = 0; i < slices.size(); ++i) {
    entry.pieces[i].at = datasets[i].offset;
    entry.pieces[i].digest = digest_of_pages(digests[i].pages);
    part.tensors[static_cast<size_t>(entry.pieces[i].tensor)].digest += digests[i].elements();
    pages.insert(pages.end(), digests[i].pages.begin(), digests[i].pages.end());
  }
  entry.pages_digest = digest_of_pages(pages);
  entry.pages_at = datasets[slices.size()].offset, entry.table_at = datasets.back().offset;
  file.write_at(pages.data(), 8 * entry.pages, entry.pages_at);
  entry.bytes = file.size();
  entry.container = container_digest(file, gaps_between(used_extents(entry), entry.bytes));
  write_table(file, part, entry);
  file.sync();
  file.close();
  rename_path(io, temporary, path);
  sync_directory(io, directory);
  require_possible(part);
  return part;
}

}  // namespace trireme
