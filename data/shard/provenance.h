// Provenance: the sources of a shard's documents, as datasets of the shard. `source_files` has names as they were given to the
// build, each with a zero byte after it. Each document has an entry in `document_files` (u32, index of the name),
// `document_offsets` and `document_lines` (i64). A shard that begins within a document has one entry more, the first, for what it
// holds of that.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/shard/shard.h"

namespace trireme {

struct DocumentSource {
  static constexpr int64_t kWholeFile = 0, kTokens = -1;

  std::string file;           // empty: not known
  int64_t offset = 0;         // where it begins: a byte of the unpacked file, or, where line is kTokens, a token of it
  int64_t line = kWholeFile;  // from 1, of a file of lines; otherwise one of these two
  bool operator==(const DocumentSource&) const = default;
};

class Provenance {
 public:
  // Adds the source of a document that is to be written, in order.
  void add(const DocumentSource& source);
  void choose(const std::vector<size_t>& documents);  // in this order from now on, of those added; some may come again
  void clear() { *this = {}; }
  std::vector<ShardDataset> datasets() const;  // views of this

  // Reads that of a shard; nullopt: it has none. DataError when it is damaged or does not fit the shard's documents.
  static std::optional<Provenance> read(const ShardReader& shard);
  DocumentSource of(int64_t document) const;  // by its number in the shard; -1: what the shard begins with
  const std::string& file_of(int64_t document) const;

 private:
  size_t entry_of(int64_t document) const;

  std::string names_;  // with their zero bytes
  std::vector<std::string> files_;
  std::map<std::string, uint32_t> numbers_;  // of files
  std::vector<uint32_t> document_files_;
  std::vector<int64_t> offsets_, lines_;
  int64_t carried_ = 0;  // entries in front of document 0's: 0 or 1
};

}  // namespace trireme
