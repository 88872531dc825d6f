#include "data/import.h"

#include <algorithm>
#include <filesystem>

#include "data/documents.h"
#include "kernels/check.h"

namespace trireme {

namespace {

constexpr int64_t kAtOnce = 1 << 20;  // tokens

void import_file(const std::string& path, TokenFormat format, const Tokenizer& tokenizer, SplitWriter& writer,
                 const std::function<void(int64_t bytes)>& read) {
  TokenFile file(path, format);
  const std::vector<int64_t>* const starts = file.document_starts();
  size_t next_start = 0;
  int64_t at = 0;
  bool starts_here = true;  // of files that do not say
  for (auto tokens = file.next(kAtOnce); !tokens.empty(); tokens = file.next(kAtOnce)) {
    for (const int32_t token : tokens) {
      if (token >= tokenizer.vocab_size())
        throw DataError(text(path, ": token ", at, " is ", token, ", the tokenizer has ", tokenizer.vocab_size(), " entries"));
      const bool end = token == tokenizer.end_of_document();
      const bool start =
          starts != nullptr ? next_start < starts->size() && (*starts)[next_start] == at : starts_here && !(end && at == 0);
      if (start) {
        writer.begin_document();
        ++next_start;
      }
      starts_here = end;
      writer.push(token);
      ++at;
    }
    read(file.bytes() * at / std::max<int64_t>(file.tokens(), 1));
  }
}

}  // namespace

SplitSummary import_shards(const ImportOptions& options, const Tokenizer& tokenizer,
                           const std::function<void(const BuildProgress&)>& progress) {
  check_shard_tokens(options.tokens_per_shard);
  std::vector<std::string> files = list_files(options.inputs);
  // In a directory the indices lie beside what they tell of.
  std::erase_if(files, [](const std::string& file) { return file.ends_with(".idx"); });
  make_room_for_shards(options.output, {options.split}, options.replace);
  SplitSummary summary;
  SplitWriter writer(options.output, options.split, tokenizer, options.tokens_per_shard, summary);
  int64_t done = 0, total = 0;
  for (const std::string& file : files) {
    std::error_code unreadable;  // told when the file's turn comes
    const auto size = std::filesystem::file_size(file, unreadable);
    if (!unreadable) total += static_cast<int64_t>(size);
  }
  for (const std::string& file : files) {
    import_file(file, options.format, tokenizer, writer, [&](int64_t bytes) {
      progress({done + bytes, total, summary.documents, summary.tokens});
    });
    std::error_code gone;
    if (const auto size = std::filesystem::file_size(file, gone); !gone) done += static_cast<int64_t>(size);
  }
  writer.finish();
  if (summary.tokens == 0) throw DataError(options.inputs.front() + ": holds no tokens");
  remove_shards(options.output, {options.split});
  writer.commit();
  return summary;
}

}  // namespace trireme
