#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text_stream.h"
#include "data/shard/exclusion.h"
#include "data/shard/provenance.h"

namespace trireme {

namespace {

int64_t last_document(const ShardReader& shard) { return shard.documents() - 1; }

// Whether the document that `shard` ends with is what `next` begins with.
bool continued(const ShardReader& shard, const ShardReader& next) {
  if (shard.tokens() == 0 || next.first_document() == 0) return false;
  const auto sources = Provenance::read(shard), of_next = Provenance::read(next);
  if (sources && of_next) return sources->of(last_document(shard)) == of_next->of(-1);
  std::vector<int32_t> end(1);
  shard.read(shard.tokens() - 1, end);
  return end.front() != shard.facts().end_of_document;
}

}  // namespace

DocumentChoice::DocumentChoice(std::vector<const ShardReader*> shards) : shards_(std::move(shards)) {}

bool DocumentChoice::continues(size_t shard) const {
  if (shard + 1 == shards_.size()) return false;
  const auto [known, fresh] = continues_.try_emplace(shard);
  if (fresh) known->second = continued(*shards_[shard], *shards_[shard + 1]);
  return known->second;
}

std::vector<DocumentChoice::Piece> DocumentChoice::pieces(Piece first) const {
  std::vector<Piece> all{first};
  while (all.back().second == last_document(*shards_[all.back().first]) && continues(all.back().first))
    all.emplace_back(all.back().first + 1, -1);
  return all;
}

// Pieces of the same document in all packed shards.
std::vector<DocumentChoice::Piece> DocumentChoice::packed_pieces(Piece one) const {
  const auto source_in = [](const Provenance& provenance, int64_t number) {
    const DocumentSource source = provenance.of(number);
    return Source(source.file, source.offset, source.line);
  };
  if (!packed_) {
    packed_.emplace();
    for (size_t i = 0; i < shards_.size(); ++i) {
      const auto provenance = shards_[i]->row() > 0 ? Provenance::read(*shards_[i]) : std::nullopt;
      for (int64_t number = 0; provenance && number <= last_document(*shards_[i]); ++number)
        (*packed_)[source_in(*provenance, number)].emplace_back(i, number);
    }
  }
  const auto provenance = Provenance::read(*shards_[one.first]);
  return provenance ? packed_->at(source_in(*provenance, one.second)) : std::vector{one};
}

void DocumentChoice::add(size_t shard, int64_t number) {
  if (chosen_.contains({shard, number})) return;
  if (shards_[shard]->row() > 0) {
    for (const Piece& piece : packed_pieces({shard, number})) chosen_.insert(piece);
    return;
  }
  while (number < 0 && shard > 0 && continues(shard - 1)) number = last_document(*shards_[--shard]);
  for (const Piece& piece : pieces({shard, number})) chosen_.insert(piece);
}

void DocumentChoice::add_listed(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string all(static_cast<size_t>(file.size()), '\0');
  file.read_at(all.data(), std::ssize(all), 0);
  TextReader lines(all);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    const Piece piece = document_named(line, text(path, ":", number));
    add(piece.first, piece.second);
  }
}

DocumentChoice::Piece DocumentChoice::document_named(const std::string& name, const std::string& where) const {
  const size_t colon = name.rfind(':');
  const std::string shard = name.substr(0, colon);
  int64_t number = 0;
  TextReader digits(colon == std::string::npos ? "" : name.substr(colon + 1));
  if (!(digits >> number) || !digits.eof())
    throw DataError(where + ": '" + name + "' is not SHARD:NUMBER, such as train-00000.h5:17");
  std::vector<size_t> found;
  for (const bool by_path : {true, false})
    for (size_t i = 0; i < shards_.size() && (by_path || found.size() != 1); ++i) {
      const std::filesystem::path path = shards_[i]->path();
      if (by_path ? path == shard : path.filename() == shard) found.push_back(i);
    }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() != 1) throw DataError(where + ": " + (found.empty() ? "none" : "more than one") + " of the shards is " + shard);
  const ShardReader& reader = *shards_[found.front()];
  if (number < reader.first_document() || number > last_document(reader))
    throw DataError(text(where, ": ", reader.path(), " has documents ", reader.first_document(), " to ", last_document(reader)));
  return {found.front(), number};
}

void DocumentChoice::add_from(const std::string& source) {
  bool known = false;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const auto provenance = Provenance::read(*shards_[i]);
    known |= provenance.has_value();
    for (int64_t number = shards_[i]->first_document(); provenance && number <= last_document(*shards_[i]); ++number)
      if (provenance->file_of(number) == source) add(i, number);
  }
  if (!known) throw DataError("the shards do not name the files of their documents: build them anew, or name documents");
}

std::string DocumentChoice::text_of(Piece first, const Tokenizer& tokenizer) const {
  std::vector<int32_t> tokens;
  for (const auto& [shard, number] : pieces(first)) {
    const auto [begin, end] = shards_[shard]->content(number);
    const size_t before = tokens.size();
    tokens.resize(before + static_cast<size_t>(end - begin));
    shards_[shard]->read(begin, std::span(tokens).subspan(before));
  }
  if (!tokens.empty() && tokens.back() == tokenizer.end_of_document()) tokens.pop_back();
  return tokenizer.decode(tokens);
}

void DocumentChoice::add_matching(const TextPattern& pattern, const Tokenizer& tokenizer) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const bool begun = i > 0 && continues(i - 1);  // its beginning was looked at with the shard before
    for (int64_t number = begun ? 0 : shards_[i]->first_document(); number <= last_document(*shards_[i]); ++number)
      if (pattern.found_in(text_of({i, number}, tokenizer))) add(i, number);
  }
}

Exclusion DocumentChoice::exclusion(const std::string& path) const {
  Exclusion exclusion{.path = path, .shards = {}};
  for (size_t i = 0; i < shards_.size(); ++i) {
    ExcludedShard shard{
        .digest = shards_[i]->digest(), .path = std::filesystem::weakly_canonical(shards_[i]->path()), .documents = {}};
    for (auto at = chosen_.lower_bound({i, -1}); at != chosen_.end() && at->first == i; ++at) shard.documents.push_back(at->second);
    if (!shard.documents.empty()) exclusion.shards.push_back(std::move(shard));
  }
  return exclusion;
}

}  // namespace trireme
