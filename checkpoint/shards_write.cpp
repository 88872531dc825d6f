#include <algorithm>
#include <map>

#include "checkpoint/digest.h"
#include "checkpoint/shards.h"

namespace trireme {

namespace {

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

uint64_t shard_digest(const NamedShard& shard) {
  const Box global = whole(shard.global_shape), box = box_of(shard);
  const int64_t unit = bytes_of(shard.local.dtype());
  const auto* bytes = static_cast<const std::byte*>(shard.local.data());
  std::vector<uint64_t> shares(static_cast<size_t>(pages_of(shard.local.bytes())));
  for_each_page(shard.local.bytes(), [&](int64_t page, int64_t begin, int64_t count) {
    for_each_run(box, global, box, begin / unit, (begin + count) / unit, [&](int64_t first, int64_t local, int64_t n) {
      shares[static_cast<size_t>(page)] += element_digest(bytes + local * unit, shard.local.dtype(), first, n);
    });
  });
  uint64_t sum = 0;
  for (const uint64_t share : shares) sum += share;
  return sum;
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
  std::map<std::string, TensorEntry> tensors;
  for (const NamedShard& shard : shards) {
    require_valid(shard);
    const Dtype dtype = shard.local.dtype();
    TensorEntry& tensor =
        tensors.try_emplace(shard.name, TensorEntry{.name = shard.name, .dtype = dtype, .shape = shard.global_shape, .pieces = {}})
            .first->second;
    require(tensor.shape == shard.global_shape && tensor.dtype == dtype,
            text("two shards of ", shard.name, " disagree on the tensor's shape or dtype"));
    tensor.digest += shard_digest(shard);
  }
  std::vector<TensorEntry> sorted;
  for (auto& [name, tensor] : tensors) sorted.push_back(std::move(tensor));
  return sorted;
}

FileEntry write_shards(const Io& io, const std::string& directory, int rank, const std::vector<NamedShard>& shards,
                       std::vector<TensorEntry>& tensors) {
  std::map<std::string, TensorEntry*> by_name;
  for (TensorEntry& tensor : tensors) by_name[tensor.name] = &tensor;
  std::vector<Piece> pieces;
  std::vector<uint64_t> table;
  for (const NamedShard& shard : shards) {
    const std::vector<uint64_t> pages = page_digests(shard.local.data(), shard.local.bytes());
    pieces.push_back({.file = 0,
                      .box = box_of(shard),
                      .bytes = shard.local.bytes(),
                      .first_page = static_cast<int64_t>(table.size()),
                      .digest = digest_of_pages(pages)});
    table.insert(table.end(), pages.begin(), pages.end());
  }

  FileEntry entry{.name = shard_name(rank), .pages = static_cast<int64_t>(table.size()), .pages_digest = digest_of_pages(table)};
  const std::string path = directory + "/" + entry.name, temporary = path + ".tmp";
  const std::vector<Hdf5Dataset> datasets = create_container(io, temporary, shards, entry.pages);
  IoFile file = IoFile::open_to_write(io, temporary);
  std::vector<Extent> used;
  for (size_t i = 0; i < shards.size(); ++i) {
    pieces[i].at = datasets[i].offset;
    file.write_at(shards[i].local.data(), pieces[i].bytes, pieces[i].at);
    used.push_back({pieces[i].at, pieces[i].at + pieces[i].bytes});
    by_name.at(shards[i].name)->pieces.push_back(pieces[i]);
  }
  entry.pages_at = datasets.back().offset;
  file.write_at(table.data(), 8 * entry.pages, entry.pages_at);
  used.push_back({entry.pages_at, entry.pages_at + 8 * entry.pages});
  entry.bytes = file.size();
  entry.container = container_digest(file, gaps_between(std::move(used), entry.bytes));
  file.sync();
  file.close();
  rename_path(io, temporary, path);
  sync_directory(io, directory);
  return entry;
}

}  // namespace trireme
