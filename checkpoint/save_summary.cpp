#include "checkpoint/save_summary.h"

#include <algorithm>
#include <utility>

#include "base/text_stream.h"
#include "checkpoint/digest.h"

namespace trireme {

namespace {

constexpr std::string_view kSeconds = "seconds", kLayout = "layout", kFile = "file", kTensor = "tensor", kDamage = "damage";

FileEntry read_file(TextReader& in) {
  FileEntry file{.name = ""};
  in >> file.name >> file.bytes >> file.table_at >> file.table_bytes >> file.table_digest;
  return file;
}

SaveSummary::Damage read_damage(TextReader& in) {
  SaveSummary::Damage damage{};
  in >> damage.step >> std::ws;
  std::getline(in, damage.problem);
  return damage;
}

SaveSummary::Tensor read_tensor(TextReader& in) {
  SaveSummary::Tensor tensor;
  std::string dtype;
  size_t dims = 0;
  in >> tensor.entry.name >> dtype >> dims;
  const std::optional<Dtype> known = dtype_named(dtype);
  require(known.has_value(), text("a summary of a save has a dtype ", dtype));
  tensor.entry.dtype = *known;
  tensor.entry.shape.resize(std::min<size_t>(dims, 4));
  for (int64_t& dim : tensor.entry.shape) in >> dim;
  in >> tensor.entry.digest >> tensor.cover.corners >> tensor.cover.elements;
  return tensor;
}

}  // namespace

SaveSummary::SaveSummary(const Manifest& part) {
  for (const TensorEntry& tensor : part.tensors) tensors.push_back({.entry = tensor, .cover = {}});
  for (const FileEntry& file : part.files) {
    for (const Piece& piece : file.pieces) tensors[static_cast<size_t>(piece.tensor)].cover.add(piece.box);
    files.push_back({.name = file.name,
                     .bytes = file.bytes,
                     .table_at = file.table_at,
                     .table_bytes = file.table_bytes,
                     .table_digest = file.table_digest});
  }
}

void SaveSummary::add(const SaveSummary& others) {
  seconds = std::max(seconds, others.seconds);
  layout += others.layout;
  for (const Damage& theirs : others.damages)  // one for each step
    if (std::ranges::find(damages, theirs.step, &Damage::step) == damages.end()) damages.push_back(theirs);
  files.insert(files.end(), others.files.begin(), others.files.end());
  std::vector<Tensor> all;
  auto mine = tensors.begin();
  for (const Tensor& theirs : others.tensors) {
    while (mine != tensors.end() && mine->entry.name < theirs.entry.name) all.push_back(std::move(*mine++));
    if (mine == tensors.end() || mine->entry.name != theirs.entry.name) {
      all.push_back(theirs);
      continue;
    }
    require(mine->entry.shape == theirs.entry.shape && mine->entry.dtype == theirs.entry.dtype,
            text("two ranks disagree on the shape or dtype of ", theirs.entry.name));
    mine->entry.digest += theirs.entry.digest;
    mine->cover.add(theirs.cover);
    all.push_back(std::move(*mine++));
  }
  all.insert(all.end(), std::make_move_iterator(mine), std::make_move_iterator(tensors.end()));
  tensors = std::move(all);
}

void SaveSummary::fill(Manifest& manifest) const {
  manifest.files = files;
  manifest.tensors = entries();
  manifest.layout = layout;
  for (const Tensor& tensor : tensors) check_cover(tensor.entry, tensor.cover);
}

std::vector<TensorEntry> SaveSummary::entries() const {
  std::vector<TensorEntry> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.entry);
  return all;
}

std::string text_of(const SaveSummary& summary) {
  std::string all = text(kSeconds, ' ', summary.seconds, '\n', kLayout, ' ', summary.layout, '\n');
  const auto put = [&all](int64_t number) { (all += ' ') += std::to_string(number); };
  const auto put_digest = [&all](uint64_t number) { (all += ' ') += std::to_string(number); };
  for (const SaveSummary::Damage& damage : summary.damages) all += text(kDamage, ' ', damage.step, ' ', damage.problem, '\n');
  for (const FileEntry& file : summary.files) {
    ((all += kFile) += ' ') += file.name;
    put(file.bytes), put(file.table_at), put(file.table_bytes), put_digest(file.table_digest);
    all += '\n';
  }
  for (const SaveSummary::Tensor& tensor : summary.tensors) {
    ((((all += kTensor) += ' ') += tensor.entry.name) += ' ') += name_of(tensor.entry.dtype);
    put(std::ssize(tensor.entry.shape));
    for (const int64_t dim : tensor.entry.shape) put(dim);
    put_digest(tensor.entry.digest), put_digest(tensor.cover.corners), put_digest(tensor.cover.elements);
    all += '\n';
  }
  return all;
}

SaveSummary summary_of(const std::string& words) {
  SaveSummary summary;
  TextReader in(words);
  for (std::string kind; in >> kind;) {
    if (kind == kSeconds)
      in >> summary.seconds;
    else if (kind == kLayout)
      in >> summary.layout;
    else if (kind == kDamage)
      summary.damages.push_back(read_damage(in));
    else if (kind == kFile)
      summary.files.push_back(read_file(in));
    else
      summary.tensors.push_back(read_tensor(in));
  }
  return summary;
}

Outcome merged(const Comm& ranks, const Outcome& mine) {
  return fold(ranks, mine, [](const std::string& lower, const std::string& higher) {
    SaveSummary all = summary_of(lower);
    all.add(summary_of(higher));
    return text_of(all);
  });
}

}  // namespace trireme
