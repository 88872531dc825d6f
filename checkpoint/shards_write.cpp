#include <algorithm>
#include <map>

#include "checkpoint/digest.h"
#include "checkpoint/shards.h"
#include "checkpoint/store.h"
#include "kernels/finite.h"

namespace trireme {

namespace {

constexpr int64_t kSynced = 256 << 20;  // bytes after which what was written goes to the disk: the last sync does not take minutes
constexpr auto kPageTable = ":page_digests";  // no tensor's name has a colon

Hdf5Type hdf5_type(Dtype dtype) {
  return dtype == Dtype::f32 ? Hdf5Type::f32 : dtype == Dtype::bf16 ? Hdf5Type::bf16 : Hdf5Type::i32;
}

void require_valid(const NamedShard& shard) {
  const Tensor& local = shard.local;
  const auto dims = static_cast<size_t>(local.dims());
  require(local.place() == Place::cpu && dims > 0, text("shard ", shard.name, " is not in host memory"));
  require(local.data() != nullptr || local.bytes() == 0, text("shard ", shard.name, " has no memory"));
  require(shard.global_shape.size() == dims && shard.offset.size() == dims,
          text("shard ", shard.name, " of ", local, " is placed in a tensor of ", shard.global_shape.size(), " dims"));
  for (size_t d = 0; d < dims; ++d)
    require(shard.offset[d] >= 0 && shard.offset[d] + local.dim(static_cast<int>(d)) <= shard.global_shape[d],
            text("shard ", shard.name, " leaves its tensor in dim ", d));
}

// The digests of a shard's elements, and of its pages.
struct Digests {
  uint64_t elements = 0;
  std::vector<uint64_t> pages;
};

// Hands each page to `write` while the processor has it at hand.
template <class Write>
Digests digest_pages(const NamedShard& shard, Write write) {
  const Box global = whole(shard.global_shape), box = box_of(shard);
  const int64_t unit = bytes_of(shard.local.dtype());
  const auto* bytes = static_cast<const std::byte*>(shard.local.data());
  Digests digests;
  digests.pages.resize(static_cast<size_t>(pages_of(shard.local.bytes())));
  std::vector<uint64_t> shares(digests.pages.size());
  for_each_page(shard.local.bytes(), [&](int64_t page, int64_t begin, int64_t count) {
    for_each_run(box, global, box, begin / unit, (begin + count) / unit, [&](int64_t first, int64_t local, int64_t n) {
      shares[static_cast<size_t>(page)] += element_digest(bytes + local * unit, shard.local.dtype(), first, n);
    });
    digests.pages[static_cast<size_t>(page)] = digest(bytes + begin, count);
    write(bytes + begin, begin, count);
  });
  for (const uint64_t share : shares) digests.elements += share;
  return digests;
}

// Of the bytes [begin, begin + count) of a shard.
void require_finite(const NamedShard& shard, int64_t begin, int64_t count) {
  const int64_t unit = bytes_of(shard.local.dtype());
  auto* bytes = static_cast<std::byte*>(shard.local.data());
  const int64_t bad = first_not_finite(Tensor(bytes + begin, shard.local.dtype(), Place::cpu, {count / unit}));
  if (bad >= 0)
    throw CheckpointError(
        text(shard.name, " is not saved: element ", begin / unit + bad, " of its shard is infinite or no number"));
}

// The tensors of which there are shards, by name, without digests.
std::map<std::string, TensorEntry> tensors_of(const std::vector<NamedShard>& shards) {
  std::map<std::string, TensorEntry> tensors;
  for (const NamedShard& shard : shards) {
    require_valid(shard);
    const Dtype dtype = shard.local.dtype();
    const TensorEntry entry{.name = shard.name, .dtype = dtype, .shape = shard.global_shape, .pieces = {}};
    const TensorEntry& tensor = tensors.try_emplace(shard.name, entry).first->second;
    require(tensor.shape == shard.global_shape && tensor.dtype == dtype,
            text("two shards of ", shard.name, " disagree on the tensor's shape or dtype"));
  }
  return tensors;
}

std::vector<TensorEntry> sorted(std::map<std::string, TensorEntry> tensors) {
  std::vector<TensorEntry> entries;
  for (auto& [name, tensor] : tensors) entries.push_back(std::move(tensor));
  return entries;
}

// A tensor's name; a part of a tensor is told from others by where it begins.
std::string dataset_name(const NamedShard& shard) {
  std::string name = shard.name;
  std::replace(name.begin(), name.end(), '/', ':');
  if (box_of(shard) == whole(shard.global_shape)) return name;
  for (size_t d = 0; d < shard.offset.size(); ++d) name += (d == 0 ? "@" : ",") + std::to_string(shard.offset[d]);
  return name;
}

std::vector<Hdf5Dataset> create_container(const Io& io, const std::string& path, const std::vector<NamedShard>& shards,
                                          int64_t pages) {
  std::vector<Hdf5Spec> specs;
  for (const NamedShard& shard : shards)
    specs.push_back({.name = dataset_name(shard), .type = hdf5_type(shard.local.dtype()), .shape = box_of(shard).shape});
  specs.push_back({.name = kPageTable, .type = Hdf5Type::u64, .shape = {pages}});
  try {
    return io.create_hdf5(path, specs, {{"format", "trireme checkpoint shard"}});
  } catch (const DataError& error) {
    throw CheckpointError(text("cannot make ", path, ": ", error.what()));
  }
}

std::string shard_name(int rank) {
  const std::string digits = std::to_string(rank);
  return "shard-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".h5";
}

}  // namespace

Box box_of(const NamedShard& shard) {
  Box box{.offset = shard.offset, .shape = {}};
  for (int d = 0; d < shard.local.dims(); ++d) box.shape.push_back(shard.local.dim(d));
  return box;
}

std::vector<TensorEntry> describe(const std::vector<NamedShard>& shards) {
  std::map<std::string, TensorEntry> tensors = tensors_of(shards);
  for (const NamedShard& shard : shards)
    tensors.at(shard.name).digest += digest_pages(shard, [](const std::byte*, int64_t, int64_t) {}).elements;
  return sorted(std::move(tensors));
}

Manifest write_shards(const Io& io, const std::string& directory, int rank, const std::vector<NamedShard>& shards, bool finite) {
  std::map<std::string, TensorEntry> tensors = tensors_of(shards);
  Manifest part;
  if (shards.empty()) return part;
  FileEntry entry{.name = shard_name(rank)};
  for (const NamedShard& shard : shards) entry.pages += pages_of(shard.local.bytes());
  const std::string path = directory + "/" + entry.name, temporary = path + kTemporary;
  const std::vector<Hdf5Dataset> datasets = create_container(io, temporary, shards, entry.pages);
  IoFile file = IoFile::open_to_write(io, temporary);
  std::vector<Extent> used;
  std::vector<uint64_t> table;
  int64_t unsynced = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const int64_t at = datasets[i].offset, bytes = shards[i].local.bytes();
    const Digests digests = digest_pages(shards[i], [&](const std::byte* page, int64_t begin, int64_t count) {
      if (finite) require_finite(shards[i], begin, count);
      file.write_at(page, count, at + begin);
    });
    TensorEntry& tensor = tensors.at(shards[i].name);
    tensor.digest += digests.elements;
    tensor.pieces.push_back({.file = 0,
                             .box = box_of(shards[i]),
                             .at = at,
                             .bytes = bytes,
                             .first_page = static_cast<int64_t>(table.size()),
                             .digest = digest_of_pages(digests.pages)});
    table.insert(table.end(), digests.pages.begin(), digests.pages.end());
    used.push_back({at, at + bytes});
    if ((unsynced += bytes) < kSynced) continue;
    file.sync();
    unsynced = 0;
  }
  entry.pages_digest = digest_of_pages(table);
  entry.pages_at = datasets.back().offset;
  file.write_at(table.data(), 8 * entry.pages, entry.pages_at);
  used.push_back({entry.pages_at, entry.pages_at + 8 * entry.pages});
  entry.bytes = file.size();
  entry.container = container_digest(file, gaps_between(std::move(used), entry.bytes));
  file.sync();
  file.close();
  rename_path(io, temporary, path);
  sync_directory(io, directory);
  part.files.push_back(std::move(entry));
  part.tensors = sorted(std::move(tensors));
  return part;
}

}  // namespace trireme
