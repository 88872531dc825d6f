#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/digest.h"

namespace trireme {

namespace {

template <class... Parts>
void must(bool holds, const Parts&... parts) {
  if (!holds) throw DamagedCheckpoint(text(parts...));
}

bool plain_file_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find_first_not_of(kAllowed) == std::string::npos;
}

// True for names that can be printed and used, with '/' replaced by ':', as a dataset's name.
bool plain_tensor_name(const std::string& name) {
  return !name.empty() && name.size() <= 512 && name.find_first_of(":@") == std::string::npos &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 127; });
}

void check_file(const FileEntry& file) {
  must(plain_file_name(file.name), "file name '", file.name, "' is not a plain name");
  must(file.bytes >= 0 && file.table_at >= 0 && file.table_bytes >= 0, file.name, ": negative sizes");
  must(file.table_at <= file.bytes && file.table_bytes <= file.bytes - file.table_at, file.name, ": its piece table of ",
       file.table_bytes, " bytes at byte ", file.table_at, " leaves its ", file.bytes, " bytes");
}

void check_pages(const FileEntry& file) {
  must(file.pages >= 0 && file.pages_at >= 0, file.name, ": negative sizes");
  must(file.pages_at <= file.bytes && file.pages <= (file.bytes - file.pages_at) / 8, file.name, ": its ", file.pages,
       " page digests at byte ", file.pages_at, " leave its ", file.bytes, " bytes");
}

void check_piece(const TensorEntry& tensor, const FileEntry& file, const Piece& piece) {
  const TensorRegion& box = piece.box;
  must(box.offset.size() == tensor.shape.size() && box.shape.size() == tensor.shape.size(), tensor.name,
       ": a piece has other dims than the tensor");
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    must(box.offset[d] >= 0 && box.shape[d] >= 0 && box.offset[d] <= tensor.shape[d] &&
             box.shape[d] <= tensor.shape[d] - box.offset[d],
         tensor.name, ": a piece leaves the tensor in dim ", d);
  must(piece.bytes == checked_product(box.shape, bytes_of(tensor.dtype)), tensor.name, ": ", piece.bytes,
       " bytes do not hold the piece's shape");
  must(piece.at >= 0 && piece.at <= file.bytes && piece.bytes <= file.bytes - piece.at, tensor.name, ": bytes ", piece.at, " + ",
       piece.bytes, " leave ", file.name, " of ", file.bytes, " bytes");
  must(piece.first_page >= 0 && piece.first_page <= file.pages && pages_of(piece.bytes) <= file.pages - piece.first_page,
       tensor.name, ": its pages leave the page table of ", file.name);
}

void sort_extents(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
}

}  // namespace

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i32})
    if (name == name_of(dtype)) return dtype;
  return std::nullopt;
}

int64_t checked_product(const std::vector<int64_t>& dims, int64_t unit) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  int64_t n = unit;
  for (const int64_t dim : dims) {
    if (dim < 0) return -1;
    if (dim > 0 && n > kLargest / dim) return -1;
    n *= dim;
  }
  return n;
}

// The corners of boxes, counted with a sign that changes with each coordinate at the upper end, determine how many of the
// boxes hold an element. Their sum is that of the corners' digests.
void Cover::add(const TensorRegion& box) {
  const size_t dims = box.shape.size();
  if (box.size() == 0) return;
  elements += static_cast<uint64_t>(box.size());
  for (size_t upper = 0; upper < size_t{1} << dims; ++upper) {
    std::array<int64_t, 4> corner{};
    bool negative = false;
    for (size_t d = 0; d < dims; ++d) {
      const bool at_end = (upper >> d & 1) != 0;
      corner[d] = box.offset[d] + (at_end ? box.shape[d] : 0);
      negative ^= at_end;
    }
    const uint64_t of_corner = digest(corner.data(), sizeof corner);
    corners += negative ? -of_corner : of_corner;
  }
}

void check_cover(const TensorEntry& tensor, const Cover& cover) {
  Cover all;
  all.add(whole(tensor.shape));
  must(cover.elements >= all.elements, tensor.name, ": its pieces lack ", all.elements - cover.elements, " elements");
  must(cover == all, tensor.name, ": its pieces overlap");
}

int64_t index_of(const Manifest& manifest, std::string_view name) {
  const auto at = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                                   [](const TensorEntry& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != manifest.tensors.end() && at->name == name ? at - manifest.tensors.begin() : -1;
}

const TensorEntry* find_tensor(const Manifest& manifest, std::string_view name) {
  const int64_t index = index_of(manifest, name);
  return index < 0 ? nullptr : &manifest.tensors[static_cast<size_t>(index)];
}

int64_t bytes_in(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

uint64_t tensors_digest(const std::vector<TensorEntry>& tensors) {
  std::string all;
  for (const TensorEntry& tensor : tensors) {
    all += tensor.name + " " + name_of(tensor.dtype);
    for (const int64_t dim : tensor.shape) all += " " + std::to_string(dim);
    all += " = " + hex(tensor.digest) + "\n";
  }
  return digest(all.data(), static_cast<int64_t>(all.size()));
}

std::string state_digest(const std::vector<TensorEntry>& tensors, const std::map<std::string, int64_t>& counters) {
  std::string all = hex(tensors_digest(tensors)) + "\n";
  for (const auto& [name, value] : counters) all += name + " = " + std::to_string(value) + "\n";
  return hex(digest(all.data(), static_cast<int64_t>(all.size())));
}

void check_part(const Manifest& manifest) {
  must(manifest.step >= 0, "step ", manifest.step);
  must(manifest.ranks >= 0 && manifest.ranks <= static_cast<int64_t>(kMostFiles), manifest.ranks, " ranks");
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    must(plain_tensor_name(tensor.name), "'", tensor.name, "' is not a plain tensor name");
    must(i == 0 || manifest.tensors[i - 1].name < tensor.name, tensor.name, ": tensors are not sorted, or one appears twice");
    must(!tensor.shape.empty() && tensor.shape.size() <= 4, tensor.name, ": ", tensor.shape.size(), " dims, allowed are 1 to 4");
    must(checked_product(tensor.shape, bytes_of(tensor.dtype)) >= 0, tensor.name, ": its shape overflows");
  }
  for (const FileEntry& file : manifest.files) {
    check_file(file);
    if (file.known) check_pieces(manifest, file);
  }
}

void check(const Manifest& manifest) {
  check_part(manifest);
  if (!std::ranges::all_of(manifest.files, &FileEntry::known)) return;
  std::vector<Cover> covers(manifest.tensors.size());
  for (const FileEntry& file : manifest.files)
    for (const Piece& piece : file.pieces) covers[static_cast<size_t>(piece.tensor)].add(piece.box);
  for (size_t i = 0; i < covers.size(); ++i) check_cover(manifest.tensors[i], covers[i]);
}

void check_pieces(const Manifest& manifest, const FileEntry& file) {
  check_pages(file);
  int64_t pages = 0;
  for (const Piece& piece : file.pieces) {
    check_piece(tensor_of(manifest, piece), file, piece);
    pages += pages_of(piece.bytes);
  }
  must(file.pages == pages, file.name, ": ", file.pages, " page digests for ", pages, " pages");
  const std::vector<Extent> used = used_extents(file);
  for (size_t i = 1; i < used.size(); ++i)
    must(used[i - 1].end <= used[i].begin, file.name, ": two pieces share byte ", used[i].begin);
}

std::vector<Extent> used_extents(const FileEntry& file) {
  std::vector<Extent> used;
  for (const Piece& piece : file.pieces)
    if (piece.bytes > 0) used.push_back({piece.at, piece.at + piece.bytes});
  if (file.pages > 0) used.push_back({file.pages_at, file.pages_at + 8 * file.pages});
  if (file.table_bytes > 0) used.push_back({file.table_at, file.table_at + file.table_bytes});
  sort_extents(used);
  return used;
}

std::vector<Extent> gaps_between(std::vector<Extent> used, int64_t bytes) {
  sort_extents(used);
  std::vector<Extent> gaps;
  int64_t end = 0;
  for (const Extent& extent : used) {
    if (extent.begin == extent.end) continue;  // an empty one may be anywhere
    if (end < extent.begin) gaps.push_back({end, extent.begin});
    end = extent.end;
  }
  if (end < bytes) gaps.push_back({end, bytes});
  return gaps;
}

}  // namespace trireme
