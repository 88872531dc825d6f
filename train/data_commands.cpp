// trireme data build, info, verify.
#include <algorithm>

#include "data/documents.h"
#include "data/shard.h"
#include "train/commands.h"
#include "train/log.h"

namespace trireme {
namespace {

std::string bytes_of(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

struct Totals {
  int64_t shards = 0, tokens = 0, documents = 0, text_bytes = 0;

  void add(const ShardReader& shard) {
    ++shards;
    tokens += shard.tokens();
    documents += static_cast<int64_t>(shard.document_starts().size());
    text_bytes += shard.facts().text_bytes;
  }
  std::string line() const {
    return text(tokens, " tokens, ", documents, " documents, ", bytes_of(text_bytes), " of text, ",
                fixed(static_cast<double>(text_bytes) / static_cast<double>(std::max<int64_t>(tokens, 1)), 2), " bytes per token");
  }
};

std::string line_of(const ShardReader& shard) {
  Totals one;
  one.add(shard);
  return text(shard.path(), ": ", one.line(), ", ", bytes_of(shard.file_bytes()), " on disk, tokenizer ", shard.facts().tokenizer,
              ", vocabulary ", shard.facts().vocab);
}

}  // namespace

ExitCode run_data_info(const std::vector<std::string>& shards) {
  Totals all;
  for (const std::string& path : list_files(shards, ".h5")) {
    const ShardReader shard(path);
    say(line_of(shard));
    all.add(shard);
  }
  if (all.shards > 1) say(std::to_string(all.shards) + " shards: " + all.line());
  return ExitCode::done;
}

ExitCode run_data_verify(const std::vector<std::string>& shards) {
  int damaged = 0;
  for (const std::string& path : list_files(shards, ".h5")) {
    try {
      const ShardReader shard(path);
      shard.verify();
      say(path + ": whole");
    } catch (const DataError& e) {  // the others are still looked at
      complain(e.what());
      ++damaged;
    }
  }
  return damaged == 0 ? ExitCode::done : ExitCode::data;
}

}  // namespace trireme
