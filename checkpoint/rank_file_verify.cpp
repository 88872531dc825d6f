// Verifying part of rank_file.h: checks all or some files of a manifest without slices to fill.
#include "checkpoint/digest.h"
#include "checkpoint/rank_files.h"

namespace trireme {

namespace {

// Verifies a piece and returns the elements' share in the tensor's digest.
uint64_t verify_piece(RankFiles& files, const TensorEntry& tensor, const Piece& piece) {
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

// Verifies page tables and the bytes around tensors.
void verify_containers(RankFiles& files, const Manifest& manifest) {
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

// The part of a manifest with the wanted files and their pieces.
template <class Wanted>
Manifest only(const Manifest& manifest, Wanted wanted) {
  Manifest part = manifest;
  part.files.clear();
  std::vector<int64_t> index(manifest.files.size(), -1);  // index of each file in `part`
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

void verify_sizes(const Io& io, const std::string& directory, const Manifest& manifest) {
  RankFiles files(io, directory, manifest);
  for (size_t f = 0; f < manifest.files.size(); ++f) files.open(static_cast<int64_t>(f));
}

void verify_files(const Io& io, const std::string& directory, const Manifest& manifest) {
  RankFiles files(io, directory, manifest, Reader::alone);
  for (const TensorEntry& tensor : manifest.tensors) {
    uint64_t elements = 0;
    for (const Piece& piece : tensor.pieces) elements += verify_piece(files, tensor, piece);
    if (elements != tensor.digest) report_elements(directory, tensor.name);
  }
  verify_containers(files, manifest);
}

Manifest part_in(const Io& io, const std::string& directory, const Manifest& manifest) {
  return only(manifest, [&](const FileEntry& file) { return path_exists(io, directory + "/" + file.name); });
}

Manifest only_file(const Manifest& manifest, const std::string& name) {
  return only(manifest, [&](const FileEntry& file) { return file.name == name; });
}

void verify_part(const Io& io, const std::string& directory, const Manifest& part) {
  for (const FileEntry& file : part.files) IoFile::open_to_read(io, directory + "/" + file.name).drop_cached();
  RankFiles files(io, directory, part, Reader::alone);
  for (const TensorEntry& tensor : part.tensors)
    for (const Piece& piece : tensor.pieces) look_through(files, tensor, piece, [](size_t, const std::byte*, int64_t, int64_t) {});
  verify_containers(files, part);
}

}  // namespace trireme
