// Verifying part of rank_file.h: checks all or some files of a manifest without slices to fill.
#include <algorithm>

#include "checkpoint/digest.h"
#include "checkpoint/rank_files.h"

namespace trireme {

namespace {

// Verifies a piece and returns the elements' share in the tensor's digest.
uint64_t verify_piece(RankFiles& files, int64_t index, const Piece& piece) {
  const TensorEntry& tensor = tensor_of(files.manifest(), piece);
  const TensorRegion global = whole(tensor.shape);
  const int64_t unit = bytes_of(tensor.dtype);
  std::vector<uint64_t> shares(static_cast<size_t>(pages_of(piece.bytes)));
  look_through(files, index, piece, [&](size_t page, const std::byte* bytes, int64_t begin, int64_t count) {
    for_each_run(piece.box, {begin / unit, (begin + count) / unit}, global, piece.box,
                 [&](int64_t first, int64_t local, int64_t n) {
                   shares[page] += element_digest(bytes + local * unit - begin, tensor.dtype, first, n);
                 });
  });
  uint64_t sum = 0;
  for (const uint64_t share : shares) sum += share;
  return sum;
}

// Verifies a file's page table and the bytes around its tensors.
void verify_container(RankFiles& files, int64_t index) {
  const FileEntry& entry = files.known(index);
  const IoFile& file = files.open(index);
  if (digest_of_pages(read_page_table(file, entry)) != entry.pages_digest)
    throw DamagedCheckpoint(file.path() + ": its page digests do not match their digest");
  if (container_digest(file, gaps_between(used_extents(entry), entry.bytes)) != entry.container)
    throw DamagedCheckpoint(file.path() + ": its HDF5 structure does not match its digest");
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
  for (int64_t i = 0; i < std::ssize(manifest.files); ++i) files.open(i);
}

void verify_names(const Io& io, const std::string& directory, const Manifest& manifest) {
  std::vector<std::string> there;
  try {
    there = names_in(io, directory);
  } catch (const CheckpointError& unreadable) {
    throw DamagedCheckpoint(unreadable.what());
  }
  for (const FileEntry& file : manifest.files)
    if (!std::ranges::binary_search(there, file.name)) throw DamagedCheckpoint(text(directory, "/", file.name, " is missing"));
}

void verify_files(const Io& io, const std::string& directory, const Manifest& manifest) {
  RankFiles files(io, directory, manifest, Reader::alone);
  std::vector<uint64_t> elements(manifest.tensors.size());
  std::vector<Cover> covers(manifest.tensors.size());
  for (int64_t i = 0; i < std::ssize(manifest.files); ++i) {
    for (const Piece& piece : files.known(i).pieces) {
      const auto tensor = static_cast<size_t>(piece.tensor);
      elements[tensor] += verify_piece(files, i, piece);
      covers[tensor].add(piece.box);
    }
    verify_container(files, i);
    files.forget(i);
  }
  for (size_t t = 0; t < elements.size(); ++t) {
    check_cover(manifest.tensors[t], covers[t]);
    if (elements[t] != manifest.tensors[t].digest) report_elements(directory, manifest.tensors[t].name);
  }
}

Manifest part_in(const Io& io, const std::string& directory, const Manifest& manifest) {
  const std::vector<std::string> there = names_in(io, directory);
  Manifest part = manifest;
  std::erase_if(part.files, [&](const FileEntry& file) { return !std::ranges::binary_search(there, file.name); });
  return part;
}

Manifest only_file(const Manifest& manifest, const std::string& name) {
  Manifest part = manifest;
  std::erase_if(part.files, [&](const FileEntry& file) { return file.name != name; });
  return part;
}

void verify_part(const Io& io, const std::string& directory, const Manifest& part) {
  RankFiles files(io, directory, part, Reader::alone);
  for (int64_t i = 0; i < std::ssize(part.files); ++i) {
    files.open(i).drop_cached();
    files.forget(i);  // so that its piece table, too, is read as it is on disk
    for (const Piece& piece : files.known(i).pieces)
      look_through(files, i, piece, [](size_t, const std::byte*, int64_t, int64_t) {});
    verify_container(files, i);
    files.forget(i);
  }
}

}  // namespace trireme
