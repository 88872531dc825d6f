#include "checkpoint/piece_location.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/digest.h"
#include "checkpoint/rank_files.h"

namespace trireme {

namespace {

using ByName = std::map<std::string_view, std::vector<TensorRegion>>;

ByName by_name(const std::vector<TensorSlice>& slices) {
  ByName boxes;
  for (const TensorSlice& slice : slices) boxes[slice.name].push_back(box_of(slice));
  return boxes;
}

bool meets(const ByName& wanted, std::string_view name, const TensorRegion& box) {
  const auto found = wanted.find(name);
  if (found == wanted.end()) return false;
  return std::ranges::any_of(found->second, [&](const TensorRegion& other) {
    return other.shape.size() == box.shape.size() && intersect(box, other).size() > 0;
  });
}

// True if the pieces of one file hold all elements of `slices`.
bool holds_all(const Manifest& manifest, const FileEntry& file, const std::vector<TensorSlice>& slices) {
  std::map<int64_t, std::vector<const TensorRegion*>> pieces;
  for (const Piece& piece : file.pieces) pieces[piece.tensor].push_back(&piece.box);
  return std::ranges::all_of(slices, [&](const TensorSlice& slice) {
    const TensorRegion box = box_of(slice);
    const auto of_tensor = pieces.find(index_of(manifest, slice.name));
    int64_t left = box.size();
    if (of_tensor != pieces.end())
      for (const TensorRegion* piece : of_tensor->second)
        if (piece->shape.size() == box.shape.size()) left -= intersect(*piece, box).size();
    return left == 0;
  });
}

std::optional<int64_t> index_of_file(const Manifest& manifest, const std::string& name) {
  const auto at = std::ranges::find(manifest.files, name, &FileEntry::name);
  return at == manifest.files.end() ? std::nullopt : std::optional(at - manifest.files.begin());
}

// The files that a layout names; nullopt if it is not the one that was saved.
std::optional<std::vector<int64_t>> files_of_layout(const Manifest& manifest, const ByName& wanted, const Layout& layout) {
  std::map<std::string_view, int64_t> index;
  for (const FileEntry& file : manifest.files) index.emplace(file.name, std::ssize(index));
  struct Looked {
    uint64_t share = 0;
    bool met = false;
  };
  std::vector<Looked> ranks(static_cast<size_t>(manifest.ranks));
  in_parallel(manifest.ranks, manifest.ranks >= 64, [&](int64_t rank) {
    const std::vector<TensorSlice> slices = layout(rank);
    const bool met =
        std::ranges::any_of(slices, [&](const TensorSlice& slice) { return meets(wanted, slice.name, box_of(slice)); });
    ranks[static_cast<size_t>(rank)] = {.share = layout_share(rank, slices), .met = met};
  });
  std::vector<int64_t> found;
  uint64_t sum = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    sum += ranks[rank].share;
    if (!ranks[rank].met) continue;
    const auto file = index.find(file_name_of(static_cast<int>(rank)));
    if (file == index.end()) return std::nullopt;
    found.push_back(file->second);
  }
  if (sum != manifest.layout) return std::nullopt;
  std::ranges::sort(found);
  return found;
}

// A file that cannot be read may not be needed.
bool can_be_known(RankFiles& files, int64_t index) {
  try {
    files.known(index);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

}  // namespace

uint64_t layout_share(int64_t rank, const std::vector<TensorSlice>& slices) {
  if (slices.empty()) return 0;
  std::vector<std::string> lines;
  for (const TensorSlice& slice : slices) {
    std::string& line = lines.emplace_back(slice.name);
    for (const int64_t begin : slice.offset) (line += ' ') += std::to_string(begin);
    for (int d = 0; d < slice.local.dims(); ++d) (line += d == 0 ? " : " : " ") += std::to_string(slice.local.dim(d));
  }
  std::ranges::sort(lines);
  std::string all = std::to_string(rank);
  for (const std::string& line : lines) (all += '\n') += line;
  return digest(all);
}

// A config that this program refuses has no layout.
ReadingRank reading_rank(const Comm& ranks, const Manifest& manifest, const LayoutOf& layout) {
  ReadingRank reader{.rank = ranks.rank(), .ranks = ranks.size()};
  try {
    if (layout && manifest.ranks > 0) reader.layout = layout(manifest.config, manifest.ranks);
  } catch (const ConfigError&) {
    return reader;
  }
  return reader;
}

std::vector<int64_t> files_with(RankFiles& files, const std::vector<TensorSlice>& slices, const ReadingRank& reader) {
  const Manifest& manifest = files.manifest();
  const ByName wanted = by_name(slices);
  if (reader.ranks > 0 && reader.ranks == manifest.ranks) {
    if (const auto own = index_of_file(manifest, file_name_of(static_cast<int>(reader.rank)))) {
      if (can_be_known(files, *own) && holds_all(manifest, files.entry(*own), slices)) return {*own};
    }
  }
  try {
    if (reader.layout && manifest.ranks > 0)
      if (const auto found = files_of_layout(manifest, wanted, reader.layout)) return *found;
  } catch (const ConfigError&) {
    // A layout that this program cannot compute.
  }
  std::vector<int64_t> all;
  for (int64_t i = 0; i < std::ssize(manifest.files); ++i) {
    const FileEntry& file = files.entry(i);
    const bool useless = file.known && std::ranges::none_of(file.pieces, [&](const Piece& piece) {
                           return meets(wanted, tensor_of(manifest, piece).name, piece.box);
                         });
    if (!useless) all.push_back(i);
  }
  return all;
}

}  // namespace trireme
