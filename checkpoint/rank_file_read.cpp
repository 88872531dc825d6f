// Reading part of rank_file.h: fills slices from pieces, however either is cut.
#include <atomic>
#include <map>
#include <set>

#include "checkpoint/digest.h"
#include "checkpoint/rank_files.h"

namespace trireme {

namespace {

// Fills the part of `slice` that lies in a piece of file `index`. If they are cut differently, it reads only the
// pages that hold some of it.
void read_part(RankFiles& files, int64_t index, const Piece& piece, const TensorSlice& slice) {
  const TensorRegion box = box_of(slice), common = intersect(piece.box, box);
  if (common.size() == 0) return;
  auto* to = static_cast<std::byte*>(slice.local.data());
  if (piece.box == box) return read_piece(files, index, piece, to);
  PieceReader reader(files, index, piece);
  const int64_t unit = bytes_of(slice.local.dtype());
  for_each_run(common, {0, common.size()}, piece.box, box,
               [&](int64_t from, int64_t local, int64_t count) { reader.read(to + local * unit, from * unit, count * unit); });
}

std::string shape_text(Dtype dtype, const std::vector<int64_t>& shape) {
  std::string list;
  for (const int64_t dim : shape) list += (list.empty() ? "" : ", ") + std::to_string(dim);
  return std::string(name_of(dtype)) + "[" + list + "]";
}

void require_same_tensors(const std::string& directory, const Manifest& manifest, const std::vector<TensorSlice>& slices,
                          const std::set<std::string>& elsewhere) {
  constexpr size_t kMost = 8;  // lines
  std::string problems;
  size_t count = 0;
  const auto add = [&](const std::string& problem) {
    if (++count <= kMost) problems += "\n" + problem;
  };
  std::set<std::string> seen;
  for (const TensorSlice& slice : slices) {
    if (!seen.insert(slice.name).second) continue;
    const TensorEntry* tensor = find_tensor(manifest, slice.name);
    const std::string wanted = shape_text(slice.local.dtype(), slice.global_shape);
    if (tensor == nullptr)
      add(text(directory, " lacks ", slice.name, " ", wanted));
    else if (const std::string found = shape_text(tensor->dtype, tensor->shape); found != wanted)
      add(text(directory, " has ", slice.name, " as ", found, ", the model as ", wanted));
  }
  for (const TensorEntry& tensor : manifest.tensors)
    if (!seen.contains(tensor.name) && !elsewhere.contains(tensor.name))
      add(text(directory, " has ", tensor.name, " ", shape_text(tensor.dtype, tensor.shape), ", the model does not"));
  if (count > kMost) problems += text("\n... and ", count - kMost, " more differences");
  if (!problems.empty())
    throw CheckpointError(
        text(directory, " holds another model than the config: use its config.yaml, or choose another train.name", problems));
}

// A part of a tensor in the memory of one slice that holds it.
struct Patch {
  const TensorSlice* slice;
  TensorRegion box;
};

// Disjoint patches that cover what the slices of one tensor hold together. A rank may hold several
// copies of an element, such as those of a key-value head shared by several parts of the model.
std::vector<Patch> patches_of(const std::vector<const TensorSlice*>& slices) {
  std::vector<Patch> patches;
  for (size_t i = 0; i < slices.size(); ++i) {
    std::vector<TensorRegion> rest{box_of(*slices[i])};
    for (size_t k = 0; k < i; ++k) {
      std::vector<TensorRegion> left;
      for (const TensorRegion& box : rest)
        for (TensorRegion& part : subtract(box, box_of(*slices[k]))) left.push_back(std::move(part));
      rest = std::move(left);
    }
    for (TensorRegion& box : rest) patches.push_back({slices[i], std::move(box)});
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
  for (const Patch& patch : patches) {  // no structured binding: clang 18 with OpenMP cannot capture one in a lambda
    const TensorSlice* const slice = patch.slice;
    const TensorRegion& box = patch.box;
    const Dtype dtype = slice->local.dtype();
    const int64_t unit = bytes_of(dtype);
    const auto* bytes = static_cast<const std::byte*>(slice->local.data());
    const TensorRegion global = whole(slice->global_shape), held = box_of(*slice);
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

}  // namespace

void read_slices(const Io& io, const std::string& directory, const Manifest& manifest, const std::vector<TensorSlice>& slices,
                 const OtherReaders& others) {
  require_same_tensors(directory, manifest, slices, others.tensors);
  RankFiles files(io, directory, manifest, others.reader);
  std::map<std::string, std::vector<const TensorSlice*>> held;
  for (const TensorSlice& slice : slices) held[slice.name].push_back(&slice);
  Coverage coverage(slices);
  for (const int64_t index : files_with(files, slices, others.rank)) {
    for (const Piece& piece : files.known(index).pieces)
      if (const auto found = held.find(tensor_of(manifest, piece).name); found != held.end())
        for (const TensorSlice* const slice : found->second) read_part(files, index, piece, *slice);
    coverage.add(manifest, files.entry(index));
    files.forget(index);
  }
  if (const Coverage::Boxes missing = coverage.missing(); !missing.empty())
    throw DamagedCheckpoint(text(directory, ": the pieces of ", missing.begin()->first, " leave a gap or overlap"));
  for (const auto& [name, of_tensor] : held) {
    const TensorEntry& tensor = *find_tensor(manifest, name);
    const std::vector<Patch> patches = patches_of(of_tensor);
    const bool complete = elements_of(patches) == whole(tensor.shape).size();
    if (complete && digest_of(patches) != tensor.digest) report_elements(directory, name);
  }
}

TensorPieces pieces_by_tensor(RankFiles& files) {
  TensorPieces pieces(files.manifest().tensors.size());
  for (int64_t i = 0; i < std::ssize(files.manifest().files); ++i)
    for (const Piece& piece : files.known(i).pieces) pieces[static_cast<size_t>(piece.tensor)].push_back({i, &piece});
  check(files.manifest());
  return pieces;
}

void read_tensor(RankFiles& files, const TensorEntry& tensor, const std::vector<PieceInFile>& pieces, Tensor into) {
  const TensorSlice slice{.name = tensor.name, .global_shape = tensor.shape, .offset = whole(tensor.shape).offset, .local = into};
  require(into.place() == Place::cpu && into.dtype() == tensor.dtype && box_of(slice).shape == tensor.shape,
          text("tensor ", tensor.name, " ", shape_text(tensor.dtype, tensor.shape), " read into ", into));
  for (const PieceInFile& part : pieces) read_part(files, part.file, *part.piece, slice);
}

}  // namespace trireme
