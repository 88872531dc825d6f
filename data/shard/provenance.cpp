#include "data/shard/provenance.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace trireme {

namespace {

template <class Number>
std::optional<std::vector<Number>> numbers_of(const ShardReader& shard, const char* name, Hdf5Type type) {
  const auto bytes = shard.read_more(name, type);
  if (!bytes) return std::nullopt;
  std::vector<Number> numbers(bytes->size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes->data(), numbers.size() * sizeof(Number));
  return numbers;
}

}  // namespace

void Provenance::add(const DocumentSource& source) {
  const auto [found, fresh] = numbers_.emplace(source.file, static_cast<uint32_t>(numbers_.size()));
  if (fresh) names_ += source.file + '\0';
  document_files_.push_back(found->second);
  offsets_.push_back(source.offset);
  lines_.push_back(source.line);
}

void Provenance::choose(const std::vector<size_t>& documents) {
  const Provenance all = std::exchange(*this, {});
  names_ = all.names_;
  numbers_ = all.numbers_;
  for (const size_t document : documents) {
    document_files_.push_back(all.document_files_[document]);
    offsets_.push_back(all.offsets_[document]);
    lines_.push_back(all.lines_[document]);
  }
}

std::vector<ShardDataset> Provenance::datasets() const {
  return {{"source_files", Hdf5Type::u8, std::as_bytes(std::span(names_))},
          {"document_files", Hdf5Type::u32, std::as_bytes(std::span(document_files_))},
          {"document_offsets", Hdf5Type::i64, std::as_bytes(std::span(offsets_))},
          {"document_lines", Hdf5Type::i64, std::as_bytes(std::span(lines_))}};
}

std::optional<Provenance> Provenance::read(const ShardReader& shard) {
  const auto names = numbers_of<char>(shard, "source_files", Hdf5Type::u8);
  auto files = numbers_of<uint32_t>(shard, "document_files", Hdf5Type::u32);
  auto offsets = numbers_of<int64_t>(shard, "document_offsets", Hdf5Type::i64);
  auto lines = numbers_of<int64_t>(shard, "document_lines", Hdf5Type::i64);
  if (!names && !files && !offsets && !lines) return std::nullopt;
  const int64_t carried = -shard.first_document();
  const auto entries = static_cast<size_t>(shard.documents() + carried);
  const bool fits = names && files && offsets && lines && files->size() == entries && offsets->size() == entries &&
                    lines->size() == entries && (names->empty() || names->back() == '\0');
  if (!fits) throw DataError(shard.path() + ": the sources of its documents do not fit its documents");
  Provenance provenance;
  for (size_t at = 0; at < names->size(); at += provenance.files_.back().size() + 1)
    provenance.files_.emplace_back(names->data() + at);
  for (const uint32_t file : *files)
    if (file >= provenance.files_.size())
      throw DataError(text(shard.path(), ": a document comes from file ", file, " of ", provenance.files_.size()));
  provenance.document_files_ = std::move(*files);
  provenance.offsets_ = std::move(*offsets);
  provenance.lines_ = std::move(*lines);
  provenance.carried_ = carried;
  return provenance;
}

size_t Provenance::entry_of(int64_t document) const {
  const auto entry = static_cast<size_t>(document + carried_);
  require(document + carried_ >= 0 && entry < offsets_.size(), text("document ", document, " of ", offsets_.size()));
  return entry;
}

const std::string& Provenance::file_of(int64_t document) const { return files_[document_files_[entry_of(document)]]; }

DocumentSource Provenance::of(int64_t document) const {
  const size_t entry = entry_of(document);
  return {.file = file_of(document), .offset = offsets_[entry], .line = lines_[entry]};
}

}  // namespace trireme
