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

// Product of dims and `unit`; -1 if a dim is negative or the product exceeds 62 bits.
int64_t product(const std::vector<int64_t>& dims, int64_t unit) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  int64_t n = unit;
  for (const int64_t dim : dims) {
    if (dim < 0) return -1;
    if (dim > 0 && n > kLargest / dim) return -1;
    n *= dim;
  }
  return n;
}

void check_file(const FileEntry& file) {
  must(plain_file_name(file.name), "file name '", file.name, "' is not a plain name");
  must(file.bytes >= 0 && file.pages >= 0 && file.pages_at >= 0, file.name, ": negative sizes");
  must(file.pages_at <= file.bytes && file.pages <= (file.bytes - file.pages_at) / 8, file.name, ": its ", file.pages,
       " page digests at byte ", file.pages_at, " leave its ", file.bytes, " bytes");
}

void check_piece(const Manifest& manifest, const TensorEntry& tensor, const Piece& piece) {
  const TensorRegion& box = piece.box;
  must(box.offset.size() == tensor.shape.size() && box.shape.size() == tensor.shape.size(), tensor.name,
       ": a piece has other dims than the tensor");
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    must(box.offset[d] >= 0 && box.shape[d] >= 0 && box.offset[d] <= tensor.shape[d] &&
             box.shape[d] <= tensor.shape[d] - box.offset[d],
         tensor.name, ": a piece leaves the tensor in dim ", d);
  must(piece.file >= 0 && piece.file < static_cast<int64_t>(manifest.files.size()), tensor.name, ": file ", piece.file, " of ",
       manifest.files.size());
  const FileEntry& file = manifest.files[static_cast<size_t>(piece.file)];
  must(piece.bytes == product(box.shape, bytes_of(tensor.dtype)), tensor.name, ": ", piece.bytes,
       " bytes do not hold the piece's shape");
  must(piece.at >= 0 && piece.at <= file.bytes && piece.bytes <= file.bytes - piece.at, tensor.name, ": bytes ", piece.at, " + ",
       piece.bytes, " leave ", file.name, " of ", file.bytes, " bytes");
  must(piece.first_page >= 0 && piece.first_page <= file.pages && pages_of(piece.bytes) <= file.pages - piece.first_page,
       tensor.name, ": its pages leave the page table of ", file.name);
}

// Corners of boxes, counted with a sign that changes with each coordinate at the upper end. They determine the sum of
// the boxes: how many of them hold an element. So boxes hold each element of a tensor once if and only if their corners
// are those of the tensor.
class Corners {
 public:
  void add(const TensorRegion& box, int sign) {
    const size_t dims = box.shape.size();
    for (size_t upper = 0; upper < size_t{1} << dims; ++upper) {
      Corner corner{};
      int of_corner = sign;
      for (size_t d = 0; d < dims; ++d) {
        const bool at_end = (upper >> d & 1) != 0;
        corner[d] = box.offset[d] + (at_end ? box.shape[d] : 0);
        if (at_end) of_corner = -of_corner;
      }
      corners_.emplace_back(corner, of_corner);
    }
  }
  bool cancel() {
    std::sort(corners_.begin(), corners_.end());
    for (size_t i = 0, next; i < corners_.size(); i = next) {
      int sum = 0;
      for (next = i; next < corners_.size() && corners_[next].first == corners_[i].first; ++next) sum += corners_[next].second;
      if (sum != 0) return false;
    }
    return true;
  }

 private:
  using Corner = std::array<int64_t, 4>;
  std::vector<std::pair<Corner, int>> corners_;
};

// Checks that pieces hold all elements once.
void check_cover(const TensorEntry& tensor) {
  must(!tensor.pieces.empty() && tensor.pieces.size() <= kMostPieces, tensor.name, ": ", tensor.pieces.size(),
       " pieces, allowed are 1 to ", kMostPieces);
  int64_t left = product(tensor.shape, 1);
  Corners corners;
  for (const Piece& piece : tensor.pieces) {
    must(piece.box.size() <= left, tensor.name, ": its pieces overlap");
    left -= piece.box.size();
    corners.add(piece.box, 1);
  }
  must(left == 0, tensor.name, ": its pieces lack ", left, " elements");
  corners.add(whole(tensor.shape), -1);
  must(corners.cancel(), tensor.name, ": its pieces overlap");
}

void sort_extents(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
}

}  // namespace

void add_part(Manifest& manifest, const Manifest& part) {
  const auto first_file = static_cast<int64_t>(manifest.files.size());
  manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
  for (const TensorEntry& theirs : part.tensors) {
    const auto at = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), theirs.name,
                                     [](const TensorEntry& tensor, const std::string& name) { return tensor.name < name; });
    const bool known = at != manifest.tensors.end() && at->name == theirs.name;
    TensorEntry& tensor =
        known ? *at
              : *manifest.tensors.insert(
                    at, TensorEntry{.name = theirs.name, .dtype = theirs.dtype, .shape = theirs.shape, .pieces = {}});
    require(tensor.shape == theirs.shape && tensor.dtype == theirs.dtype,
            text("two ranks disagree on the shape or dtype of ", theirs.name));
    tensor.digest += theirs.digest;
    for (Piece piece : theirs.pieces) {
      piece.file += first_file;
      tensor.pieces.push_back(piece);
    }
  }
}

const TensorEntry* find_tensor(const Manifest& manifest, const std::string& name) {
  const auto at = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                                   [](const TensorEntry& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return at != manifest.tensors.end() && at->name == name ? &*at : nullptr;
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

void check(const Manifest& manifest) {
  must(manifest.step >= 0, "step ", manifest.step);
  for (const FileEntry& file : manifest.files) check_file(file);
  std::vector<int64_t> pages(manifest.files.size());
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    must(plain_tensor_name(tensor.name), "'", tensor.name, "' is not a plain tensor name");
    must(i == 0 || manifest.tensors[i - 1].name < tensor.name, tensor.name, ": tensors are not sorted, or one appears twice");
    must(!tensor.shape.empty() && tensor.shape.size() <= 4, tensor.name, ": ", tensor.shape.size(), " dims, allowed are 1 to 4");
    must(product(tensor.shape, bytes_of(tensor.dtype)) >= 0, tensor.name, ": its shape overflows");
    for (const Piece& piece : tensor.pieces) {
      check_piece(manifest, tensor, piece);
      pages[static_cast<size_t>(piece.file)] += pages_of(piece.bytes);
    }
    check_cover(tensor);
  }
  const std::vector<std::vector<Extent>> used = used_extents(manifest);
  for (size_t f = 0; f < used.size(); ++f) {
    must(manifest.files[f].pages == pages[f], manifest.files[f].name, ": ", manifest.files[f].pages, " page digests for ", pages[f],
         " pages");
    for (size_t i = 1; i < used[f].size(); ++i)
      must(used[f][i - 1].end <= used[f][i].begin, manifest.files[f].name, ": two pieces share byte ", used[f][i].begin);
  }
}

std::vector<std::vector<Extent>> used_extents(const Manifest& manifest) {
  std::vector<std::vector<Extent>> used(manifest.files.size());
  for (const TensorEntry& tensor : manifest.tensors)
    for (const Piece& piece : tensor.pieces)
      if (piece.bytes > 0) used[static_cast<size_t>(piece.file)].push_back({piece.at, piece.at + piece.bytes});
  for (size_t f = 0; f < used.size(); ++f) {
    const FileEntry& file = manifest.files[f];
    if (file.pages > 0) used[f].push_back({file.pages_at, file.pages_at + 8 * file.pages});
    sort_extents(used[f]);
  }
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
