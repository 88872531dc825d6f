#include "checkpoint/piece_location.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "checkpoint/digest.h"
#include "checkpoint/rank_files.h"

namespace trireme {

namespace {

using ByName = Coverage::Boxes;

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

bool meet(const ByName& wanted, const std::vector<TensorSlice>& slices) {
  return std::ranges::any_of(slices, [&](const TensorSlice& slice) { return meets(wanted, slice.name, box_of(slice)); });
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
    ranks[static_cast<size_t>(rank)] = {.share = layout_share(rank, slices), .met = meet(wanted, slices)};
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

// On the mesh that saved, a rank's own file and those of its neighbours, which hold what is the same on all ranks of a tp group.
// nullopt if they do not hold all.
std::optional<std::vector<int64_t>> files_nearby(RankFiles& files, const std::vector<TensorSlice>& slices,
                                                 const ReadingRank& reader) {
  constexpr int64_t kNear = 64;
  const Manifest& manifest = files.manifest();
  if (reader.ranks == 0 || reader.ranks != manifest.ranks) return std::nullopt;
  Coverage coverage(slices);
  ByName missing = coverage.missing();
  std::vector<int64_t> found;
  const auto look = [&](int64_t rank) {
    const auto index = index_of_file(manifest, file_name_of(static_cast<int>(rank)));
    if (!index || !can_be_known(files, *index)) return;
    coverage.add(manifest, files.entry(*index));
    missing = coverage.missing();
    found.push_back(*index);
  };
  look(reader.rank);
  const int64_t first = reader.rank / kNear * kNear;
  for (int64_t rank = first; reader.layout && rank < std::min(first + kNear, reader.ranks) && !missing.empty(); ++rank)
    if (rank != reader.rank && meet(missing, reader.layout(rank))) look(rank);
  if (!missing.empty()) return std::nullopt;
  std::ranges::sort(found);
  return found;
}

}  // namespace

Coverage::Coverage(const std::vector<TensorSlice>& slices) {
  for (const TensorSlice& slice : slices) {
    Held& held = slices_[slice.name].emplace_back(Held{.box = box_of(slice)});
    held.wanted.add(held.box);
  }
}

void Coverage::add(const Manifest& manifest, const FileEntry& file) {
  for (const Piece& piece : file.pieces)
    if (const auto found = slices_.find(tensor_of(manifest, piece).name); found != slices_.end())
      for (Held& held : found->second)
        if (held.box.shape.size() == piece.box.shape.size()) held.found.add(intersect(piece.box, held.box));
}

Coverage::Boxes Coverage::missing() const {
  Boxes boxes;
  for (const auto& [name, all] : slices_)
    for (const Held& held : all)
      if (held.found != held.wanted) boxes[name].push_back(held.box);
  return boxes;
}

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

std::optional<std::vector<int64_t>> located_files(RankFiles& files, const std::vector<TensorSlice>& slices,
                                                  const ReadingRank& reader) {
  const Manifest& manifest = files.manifest();
  const ByName wanted = by_name(slices);
  try {
    if (auto found = files_nearby(files, slices, reader)) return found;
    if (reader.layout && manifest.ranks > 0)
      if (auto found = files_of_layout(manifest, wanted, reader.layout)) return found;
  } catch (const ConfigError&) {
    // A layout that this program cannot compute.
  }
  if (!std::ranges::all_of(manifest.files, &FileEntry::known)) return std::nullopt;
  std::vector<int64_t> met;
  for (int64_t i = 0; i < std::ssize(manifest.files); ++i)
    if (std::ranges::any_of(files.entry(i).pieces,
                            [&](const Piece& piece) { return meets(wanted, tensor_of(manifest, piece).name, piece.box); }))
      met.push_back(i);
  return met;
}

std::vector<int64_t> files_with(RankFiles& files, const std::vector<TensorSlice>& slices, const ReadingRank& reader) {
  if (auto located = located_files(files, slices, reader)) return *std::move(located);
  std::vector<int64_t> all(files.manifest().files.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace trireme
