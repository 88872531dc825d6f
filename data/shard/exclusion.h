// Exclusion: a list of documents that are not trained on. Its file names their shards by digest.
//
//     trireme exclusion 1 DIGEST-OF-THE-REST
//     shard DIGEST PATH
//     17
//     120-140
//
// A number is a document's index in its shard; -1 is the end of a document that begins in another shard.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/shard/shard.h"
#include "data/text/text_pattern.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct ExcludedShard {
  uint64_t digest;
  std::string path;                // where it lay; what counts is the digest
  std::vector<int64_t> documents;  // rising
};

struct Exclusion {
  std::string path;  // of the file
  std::vector<ExcludedShard> shards;
  int64_t documents() const;
};

bool is_exclusion(const std::string& path);         // by its first bytes
Exclusion read_exclusion(const std::string& path);  // DataError when it is none, or damaged
void write_exclusion(const Exclusion& exclusion);   // at its path, whole or not at all

// Documents that are chosen for an exclusion. A document that lies in several shards is chosen whole: shards that follow one
// another in the list are taken for such where the second begins within a document and their sources, where they name them, are the
// same. So are the pieces of a document that was too long for a packed row, in packed shards that name their sources.
class DocumentChoice {
 public:
  using Piece = std::pair<size_t, int64_t>;                         // shard, number
  explicit DocumentChoice(std::vector<const ShardReader*> shards);  // which outlive this

  void add(size_t shard, int64_t number);
  // SHARD:NUMBER, the shard by path or by its file's name. DataError, which begins with `where`, when there is no such document.
  Piece document_named(const std::string& name, const std::string& where) const;
  void add_listed(const std::string& file);  // such lines; # begins one that says nothing
  void add_from(const std::string& source);  // all that come from a file of this name. DataError if the shards do not name files
  void add_matching(const TextPattern& pattern, const Tokenizer& tokenizer);
  int64_t size() const { return static_cast<int64_t>(chosen_.size()); }  // each piece counts

  Exclusion exclusion(const std::string& path) const;

 private:
  bool continues(size_t shard) const;  // the last document of the shard, in the next one
  std::vector<Piece> pieces(Piece first) const;
  std::vector<Piece> packed_pieces(Piece one) const;
  std::string text_of(Piece first, const Tokenizer& tokenizer) const;

  const std::vector<const ShardReader*> shards_;
  mutable std::map<size_t, bool> continues_;                            // of shards that were asked for
  using Source = std::tuple<std::string, int64_t, int64_t>;             // as in DocumentSource
  mutable std::optional<std::map<Source, std::vector<Piece>>> packed_;  // of packed shards, when one is asked for
  std::set<Piece> chosen_;
};

}  // namespace trireme
