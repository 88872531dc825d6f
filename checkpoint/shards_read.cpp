#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/digest.h"
#include "checkpoint/shards.h"

namespace trireme {

namespace {

// The files of a checkpoint, one open at a time.
class ShardFiles {
 public:
  ShardFiles(const Io& io, const std::string& directory, const Manifest& manifest, Reader reader = Reader::one_of_many)
      : io_(io), directory_(directory), manifest_(manifest), reader_(reader) {}

  const IoFile& open(int64_t index) {
    if (file_ && index_ == index) return *file_;
    const FileEntry& entry = manifest_.files[static_cast<size_t>(index)];
    file_.reset();
    file_.emplace(IoFile::open_to_read(io_, directory_ + "/" + entry.name));
    if (reader_ == Reader::alone) file_->bypass_cache();
    index_ = index;
    if (const int64_t bytes = file_->size(); bytes != entry.bytes)
      throw DamagedCheckpoint(text(file_->path(), " is ", bytes, " bytes, its manifest says ", entry.bytes));
    return *file_;
  }
  const FileEntry& entry(int64_t index) const { return manifest_.files[static_cast<size_t>(index)]; }

  // The digests of all pages of a file, which match theirs.
  const std::vector<uint64_t>& pages(int64_t index) {
    std::vector<uint64_t>& table = tables_[index];
    if (!table.empty() || entry(index).pages == 0) return table;
    const IoFile& file = open(index);
    table.resize(static_cast<size_t>(entry(index).pages));
    file.read_at(table.data(), 8 * entry(index).pages, entry(index).pages_at);
    if (digest_of_pages(table) != entry(index).pages_digest)
      throw DamagedCheckpoint(file.path() + ": its page digests do not match their digest");
    return table;
  }

 private:
  const Io& io_;
  const std::string& directory_;
  const Manifest& manifest_;
  Reader reader_;
  std::optional<IoFile> file_;
  int64_t index_ = -1;
  std::map<int64_t, std::vector<uint64_t>> tables_;
};

std::vector<uint64_t> read_page_table(const IoFile& file, const FileEntry& entry) {
  std::vector<uint64_t> table(static_cast<size_t>(entry.pages));
  file.read_at(table.data(), 8 * entry.pages, entry.pages_at);
  return table;
}

// Throws with the name of the tensor and, if the page table can be trusted, the place of the damage.
[[noreturn]] void report_damage(const IoFile& file, const FileEntry& entry, const TensorEntry& tensor, const Piece& piece,
                                const std::vector<uint64_t>& pages) {
  std::string where;
  const std::vector<uint64_t> table = read_page_table(file, entry);
  if (digest_of_pages(table) == entry.pages_digest)
    for (size_t i = pages.size(); i-- > 0;)
      if (table[static_cast<size_t>(piece.first_page) + i] != pages[i])
        where = text(" in the MiB at byte ", piece.at + static_cast<int64_t>(i) * kPage);
  throw DamagedCheckpoint(text(file.path(), ": tensor ", tensor.name, " does not match its digest", where));
}

void read_piece(ShardFiles& files, const TensorEntry& tensor, const Piece& piece, std::byte* into) {
  const IoFile& file = files.open(piece.file);
  std::vector<uint64_t> pages(static_cast<size_t>(pages_of(piece.bytes)));
  for_each_page(piece.bytes, [&](int64_t page, int64_t begin, int64_t count) {
    file.read_at(into + begin, count, piece.at + begin);
    pages[static_cast<size_t>(page)] = digest(into + begin, count);
  });
  if (digest_of_pages(pages) != piece.digest) report_damage(file, files.entry(piece.file), tensor, piece, pages);
}

// Reads a piece through a page of memory at a time, and calls look(page, bytes, begin, count) with what is in it.
template <class Look>
void look_through(ShardFiles& files, const TensorEntry& tensor, const Piece& piece, Look look) {
  const IoFile& file = files.open(piece.file);
  std::vector<uint64_t> pages(static_cast<size_t>(pages_of(piece.bytes)));
  for_each_page(piece.bytes, [&](int64_t page, int64_t begin, int64_t count) {
    static thread_local const DiskMemory memory(kPage);
    std::byte* const bytes = memory.data();
    file.read_at(bytes, count, piece.at + begin);
    pages[static_cast<size_t>(page)] = digest(bytes, count);
    look(static_cast<size_t>(page), bytes, begin, count);
  });
  if (digest_of_pages(pages) != piece.digest) report_damage(file, files.entry(piece.file), tensor, piece, pages);
}

// Returns the elements' share in the tensor's digest.
uint64_t verify_piece(ShardFiles& files, const TensorEntry& tensor, const Piece& piece) {
  const TensorRegion global = whole(tensor.shape);
  const int64_t unit = bytes_of(tensor.dtype);
  std::vector<uint64_t> shares(static_cast<size_t>(pages_of(piece.bytes)));
  look_through(files, tensor, piece, [&](size_t page, const std::byte* bytes, int64_t begin, int64_t count) {
    for_each_run(piece.box, {begin / unit, (begin + count) / unit}, global, piece.box,
                 [&](int64_t first, int64_t local, int64_t n) {
                   shares[page] += element_digest(bytes + local * unit - begin, tensor.dtype, first, n);
                 });
  });
  uint64_t sum = 0;
  for (const uint64_t share : shares) sum += share;
  return sum;
}

// The page tables, and what lies around the tensors.
void verify_containers(ShardFiles& files, const Manifest& manifest) {
  const std::vector<std::vector<Extent>> used = used_extents(manifest);
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    const FileEntry& entry = manifest.files[f];
    const IoFile& file = files.open(static_cast<int64_t>(f));
    if (digest_of_pages(read_page_table(file, entry)) != entry.pages_digest)
      throw DamagedCheckpoint(file.path() + ": its page digests do not match their digest");
    if (container_digest(file, gaps_between(used[f], entry.bytes)) != entry.container)
      throw DamagedCheckpoint(file.path() + ": its HDF5 structure does not match its digest");
  }
}

[[noreturn]] void report_page(const IoFile& file, const TensorEntry& tensor, int64_t at) {
  throw DamagedCheckpoint(text(file.path(), ": tensor ", tensor.name, " does not match its digest in the MiB at byte ", at));
}

// One page of a piece after the other, each checked against its digest.
class PieceReader {
 public:
  PieceReader(ShardFiles& files, const TensorEntry& tensor, const Piece& piece) : files_(files), tensor_(tensor), piece_(piece) {}

  // Bytes [begin, begin + count) of the piece.
  void read(std::byte* to, int64_t begin, int64_t count) {
    while (count > 0) {
      const int64_t page = begin / kPage, within = begin % kPage, now = std::min(count, kPage - within);
      if (page != page_) load(page);
      std::memcpy(to, bytes_.data() + within, static_cast<size_t>(now));
      to += now, begin += now, count -= now;
    }
  }

 private:
  void load(int64_t page) {
    const uint64_t wanted = files_.pages(piece_.file)[static_cast<size_t>(piece_.first_page + page)];
    const IoFile& file = files_.open(piece_.file);
    const int64_t at = page * kPage;
    bytes_.resize(static_cast<size_t>(std::min(kPage, piece_.bytes - at)));
    file.read_at(bytes_.data(), static_cast<int64_t>(bytes_.size()), piece_.at + at);
    if (digest(bytes_.data(), static_cast<int64_t>(bytes_.size())) != wanted) report_page(file, tensor_, piece_.at + at);
    page_ = page;
  }

  ShardFiles& files_;
  const TensorEntry& tensor_;
  const Piece& piece_;
  int64_t page_ = -1;
  std::vector<std::byte> bytes_;
};

// Fills the part of `shard` that lies in `piece`: of a piece that is cut otherwise, only the pages that hold some of it are read.
void read_part(ShardFiles& files, const TensorEntry& tensor, const Piece& piece, const NamedShard& shard) {
  const TensorRegion box = box_of(shard), common = intersect(piece.box, box);
  if (common.size() == 0) return;
  auto* to = static_cast<std::byte*>(shard.local.data());
  if (piece.box == box) return read_piece(files, tensor, piece, to);
  PieceReader reader(files, tensor, piece);
  const int64_t unit = bytes_of(tensor.dtype);
  for_each_run(common, {0, common.size()}, piece.box, box,
               [&](int64_t from, int64_t local, int64_t count) { reader.read(to + local * unit, from * unit, count * unit); });
}

std::string shape_text(Dtype dtype, const std::vector<int64_t>& shape) {
  std::string list;
  for (const int64_t dim : shape) list += (list.empty() ? "" : ", ") + std::to_string(dim);
  return std::string(name_of(dtype)) + "[" + list + "]";
}

void require_same_tensors(const std::string& directory, const Manifest& manifest, const std::vector<NamedShard>& shards,
                          const std::set<std::string>& elsewhere) {
  std::string problems;
  std::set<std::string> seen;
  for (const NamedShard& shard : shards) {
    if (!seen.insert(shard.name).second) continue;
    const TensorEntry* tensor = find_tensor(manifest, shard.name);
    const std::string wanted = shape_text(shard.local.dtype(), shard.global_shape);
    if (tensor == nullptr)
      problems += text("\n", directory, " lacks ", shard.name, " ", wanted);
    else if (const std::string found = shape_text(tensor->dtype, tensor->shape); found != wanted)
      problems += text("\n", directory, " has ", shard.name, " as ", found, ", the model as ", wanted);
  }
  for (const TensorEntry& tensor : manifest.tensors)
    if (!seen.contains(tensor.name) && !elsewhere.contains(tensor.name))
      problems += text("\n", directory, " has ", tensor.name, " ", shape_text(tensor.dtype, tensor.shape), ", the model does not");
  if (!problems.empty())
    throw CheckpointError(
        text(directory, " is of another model than the config's: use its config.yaml, or choose another train.name", problems));
}

// The wanted files, with their pieces.
template <class Wanted>
Manifest only(const Manifest& manifest, Wanted wanted) {
  Manifest part = manifest;
  part.files.clear();
  std::vector<int64_t> index(manifest.files.size(), -1);  // of each file in `part`
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    if (!wanted(manifest.files[f])) continue;
    index[f] = static_cast<int64_t>(part.files.size());
    part.files.push_back(manifest.files[f]);
  }
  for (TensorEntry& tensor : part.tensors) {
    for (Piece& piece : tensor.pieces) piece.file = index[static_cast<size_t>(piece.file)];
    std::erase_if(tensor.pieces, [](const Piece& piece) { return piece.file < 0; });
  }
  return part;
}

// A part of a tensor, in the memory of one shard that holds it.
struct Patch {
  const NamedShard* shard;
  TensorRegion box;
};

// Disjoint patches that cover what the shards of one tensor hold together: a rank may hold several copies of an element, such as
// those of a key-value head that several parts of the model use.
std::vector<Patch> patches_of(const std::vector<const NamedShard*>& shards) {
  std::vector<Patch> patches;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorRegion> rest{box_of(*shards[i])};
    for (size_t k = 0; k < i; ++k) {
      std::vector<TensorRegion> left;
      for (const TensorRegion& box : rest)
        for (TensorRegion& part : subtract(box, box_of(*shards[k]))) left.push_back(std::move(part));
      rest = std::move(left);
    }
    for (TensorRegion& box : rest) patches.push_back({shards[i], std::move(box)});
  }
  return patches;
}

int64_t elements_of(const std::vector<Patch>& patches) {
  int64_t count = 0;
  for (const Patch& patch : patches) count += patch.box.size();
  return count;
}

uint64_t digest_of(const std::vector<Patch>& patches) {
  std::atomic<uint64_t> sum = 0;
  for (const Patch& patch : patches) {  // no structured binding: with OpenMP, clang 18 lets no lambda capture one
    const NamedShard* const shard = patch.shard;
    const TensorRegion& box = patch.box;
    const Dtype dtype = shard->local.dtype();
    const int64_t unit = bytes_of(dtype);
    const auto* bytes = static_cast<const std::byte*>(shard->local.data());
    const TensorRegion global = whole(shard->global_shape), held = box_of(*shard);
    for_each_page(box.size() * unit, [&](int64_t, int64_t begin, int64_t count) {
      uint64_t share = 0;
      for_each_run(box, {begin / unit, (begin + count) / unit}, global, held, [&](int64_t first, int64_t local, int64_t n) {
        share += element_digest(bytes + local * unit, dtype, first, n);
      });
      sum += share;
    });
  }
  return sum;
}

[[noreturn]] void report_elements(const std::string& directory, const std::string& tensor) {
  throw DamagedCheckpoint(text(directory, ": the elements of tensor ", tensor, " do not match their digest"));
}

}  // namespace

uint64_t container_digest(const IoFile& file, const std::vector<Extent>& extents) {
  std::vector<uint64_t> all;
  for (const Extent& extent : extents) {
    std::vector<uint64_t> pages(static_cast<size_t>(pages_of(extent.end - extent.begin)));
    for_each_page(extent.end - extent.begin, [&](int64_t page, int64_t begin, int64_t count) {
      std::vector<std::byte> bytes(static_cast<size_t>(count));
      file.read_at(bytes.data(), count, extent.begin + begin);
      pages[static_cast<size_t>(page)] = digest(bytes.data(), count);
    });
    all.insert(all.end(), pages.begin(), pages.end());
  }
  return digest_of_pages(all);
}

void read_shards(const Io& io, const std::string& directory, const Manifest& manifest, const std::vector<NamedShard>& shards,
                 const std::set<std::string>& elsewhere, Reader reader) {
  require_same_tensors(directory, manifest, shards, elsewhere);
  ShardFiles files(io, directory, manifest, reader);
  std::map<std::string, std::vector<const NamedShard*>> held;
  for (const NamedShard& shard : shards) {
    const TensorEntry& tensor = *find_tensor(manifest, shard.name);
    for (const Piece& piece : tensor.pieces) read_part(files, tensor, piece, shard);
    held[shard.name].push_back(&shard);
  }
  for (const auto& [name, of_tensor] : held) {
    const TensorEntry& tensor = *find_tensor(manifest, name);
    const std::vector<Patch> patches = patches_of(of_tensor);
    const bool complete = elements_of(patches) == whole(tensor.shape).size();
    if (complete && digest_of(patches) != tensor.digest) report_elements(directory, name);
  }
}

void read_tensor(const Io& io, const std::string& directory, const Manifest& manifest, const TensorEntry& tensor, Tensor into) {
  const NamedShard shard{.name = tensor.name, .global_shape = tensor.shape, .offset = whole(tensor.shape).offset, .local = into};
  require(into.place() == Place::cpu && into.dtype() == tensor.dtype && box_of(shard).shape == tensor.shape,
          text("tensor ", tensor.name, " ", shape_text(tensor.dtype, tensor.shape), " read into ", into));
  ShardFiles files(io, directory, manifest);
  for (const Piece& piece : tensor.pieces) read_part(files, tensor, piece, shard);
}

void verify_sizes(const Io& io, const std::string& directory, const Manifest& manifest) {
  ShardFiles files(io, directory, manifest);
  for (size_t f = 0; f < manifest.files.size(); ++f) files.open(static_cast<int64_t>(f));
}

void verify_files(const Io& io, const std::string& directory, const Manifest& manifest) {
  ShardFiles files(io, directory, manifest, Reader::alone);
  for (const TensorEntry& tensor : manifest.tensors) {
    uint64_t elements = 0;
    for (const Piece& piece : tensor.pieces) elements += verify_piece(files, tensor, piece);
    if (elements != tensor.digest) report_elements(directory, tensor.name);
  }
  verify_containers(files, manifest);
}

Manifest part_in(const std::string& directory, const Manifest& manifest) {
  return only(manifest, [&](const FileEntry& file) { return path_exists(directory + "/" + file.name); });
}

Manifest only_file(const Manifest& manifest, const std::string& name) {
  return only(manifest, [&](const FileEntry& file) { return file.name == name; });
}

void verify_part(const Io& io, const std::string& directory, const Manifest& part) {
  for (const FileEntry& file : part.files) IoFile::open_to_read(io, directory + "/" + file.name).drop_cached();
  ShardFiles files(io, directory, part, Reader::alone);
  for (const TensorEntry& tensor : part.tensors)
    for (const Piece& piece : tensor.pieces) look_through(files, tensor, piece, [](size_t, const std::byte*, int64_t, int64_t) {});
  verify_containers(files, part);
}

}  // namespace trireme
