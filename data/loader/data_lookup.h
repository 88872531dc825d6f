// Lookup of the documents that a step reads, and of the steps that read a document. It computes the order of samples as the loader
// does, without reading tokens.
#pragma once

#include <map>
#include <vector>

#include "data/loader/loader.h"
#include "data/shard/provenance.h"

namespace trireme {

// Part of a document in a row: tokens [begin, end) of the shard.
struct RowDocument {
  int64_t number;         // in the shard; -1: one that the shard before begins
  int64_t begin, end;     // of the last in a packed row with what fills the row
  DocumentSource source;  // of an empty file if the shard does not name it
};

// One sample of a step: the row of the whole batch, and of which replica it is.
struct WhereRow {
  int64_t row;
  RowPlace place;
  Mixture::Sample sample;
  size_t shard;        // of the source
  int64_t begin, end;  // tokens of the shard, with the last target
  std::vector<RowDocument> documents;
};

// A document, by its number in a shard of a source.
struct DocumentName {
  size_t source, shard;
  int64_t number;
  auto operator<=>(const DocumentName&) const = default;
};

class Where {
 public:
  // The mixture's corpora outlive this.
  Where(Mixture mixture, const LoaderOptions& options);

  std::vector<WhereRow> step(int64_t step);  // counted from 0
  // Steps in front of `end`, each once, rising, in which some of the document is read.
  std::vector<int64_t> steps_with(const DocumentName& document, int64_t end) const;
  // All documents that came from a file of this name.
  std::vector<DocumentName> documents_of(const std::string& file);

  const Mixture& mixture() const { return mixture_; }
  const ShardReader& shard(size_t source, size_t shard) const { return mixture_.source(source).shards()[shard]; }
  DocumentSource source_of(const DocumentName& document);

 private:
  const std::optional<Provenance>& provenance(size_t source, size_t shard);

  const Mixture mixture_;
  const LoaderOptions options_;
  std::map<std::pair<size_t, size_t>, std::optional<Provenance>> provenance_;  // of shards that were asked for
};

}  // namespace trireme
