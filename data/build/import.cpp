#include "data/build/import.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "data/build/build_journal.h"
#include "data/documents/list_files.h"

namespace trireme {

namespace {

constexpr int64_t kAtOnce = 1 << 20;  // tokens

constexpr int32_t kLlama3Begin = 128000, kLlama3End = 128001;

void import_file(const std::string& path, const ImportOptions& options, const Tokenizer& tokenizer, SplitWriter& writer,
                 const std::function<void(int64_t bytes)>& read) {
  TokenFile file(path, options.format);
  const std::vector<int64_t>* const starts = file.document_starts();
  const int32_t end = options.end >= 0 ? options.end : tokenizer.end_of_document();
  const bool llama3 = file.of_llama3() && tokenizer.end_of_document() == kLlama3End;
  const int32_t begin = options.begin < 0 && llama3 ? kLlama3Begin : options.begin;
  size_t next_start = 0;
  int64_t at = 0;
  bool behind_end = true;
  for (auto tokens = file.next(kAtOnce); !tokens.empty(); tokens = file.next(kAtOnce)) {
    for (const int32_t token : tokens) {
      if (token >= tokenizer.vocab_size())
        throw DataError(text(path, ": token ", at, " is ", token, ", the tokenizer has ", tokenizer.vocab_size(), " entries"));
      const bool start = starts != nullptr ? next_start < starts->size() && (*starts)[next_start] == at
                         : begin >= 0      ? token == begin || at == 0
                                           : behind_end && !(token == end && at == 0);
      if (start) {
        writer.begin_document({.file = path, .offset = at, .line = DocumentSource::kTokens});
        ++next_start;
      }
      behind_end = token == end;
      writer.push({&token, 1});
      ++at;
    }
    read(file.bytes_read());
  }
}

// Megatron's .bin of its .idx.
std::string bin_of(const std::string& index) { return index.substr(0, index.size() - 3) + "bin"; }

bool has_index(const std::string& file) {
  return file.ends_with(".bin") && std::filesystem::exists(file.substr(0, file.size() - 3) + "idx");
}

std::vector<std::string> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> all;
  for (const std::string& input : inputs) {
    const bool prefix = !std::filesystem::exists(input) && std::filesystem::exists(input + ".bin");
    std::vector<std::string> files = list_files({prefix ? input + ".bin" : input});
    if (std::filesystem::is_directory(input)) {
      const bool megatron = std::ranges::any_of(files, has_index);
      std::erase_if(files, [&](const std::string& file) {
        return megatron ? !has_index(file) : !file.ends_with(".bin") && !file.ends_with(".npy");
      });
      if (files.empty()) throw DataError(input + ": no .bin and no .npy under this directory");
      const auto named = [&](const char* part) {
        return std::ranges::any_of(files, [&](const std::string& file) {
          return std::filesystem::path(file).filename().string().find(part) != std::string::npos;
        });
      };
      if (named("train") && named("val"))
        throw DataError(input + ": holds files of train and of val: name them by patterns, such as " + input + "/*train*");
    }
    for (const std::string& file : files) {
      const std::string tokens = file.ends_with(".idx") ? bin_of(file) : file;
      if (std::ranges::find(all, tokens) == all.end()) all.push_back(tokens);
    }
  }
  return all;
}

}  // namespace

SplitSummary import_shards(const ImportOptions& options, const Tokenizer& tokenizer,
                           const std::function<void(const BuildProgress&)>& progress,
                           const std::function<void(const std::string&)>& removed) {
  check_shard_tokens(options.tokens_per_shard);
  for (const auto& [option, token] : {std::pair("--begin ", options.begin), {"--end ", options.end}})
    if (token >= tokenizer.vocab_size())
      throw ConfigError(text(option, token, ": the tokenizer has ", tokenizer.vocab_size(), " entries"));
  const std::vector<std::string> files = files_of(options.inputs);
  make_directory(options.output);
  const DirectoryLock lock(options.output);
  finish_renaming(options.output);
  refuse_shards(options.output, {options.split}, options.replace);
  if (removed && BuildJournal::load(options.output))
    removed(options.output + ": an unfinished `data build` is there: its files are removed, and it cannot be continued");
  BuildJournal::remove(options.output);
  // Without a journal, unfinished shards of other splits serve nobody.
  remove_unfinished(options.output, {"train", "validation", options.split});
  SplitSummary summary;
  SplitWriter writer({.directory = options.output, .split = options.split, .tokens_per_shard = options.tokens_per_shard}, tokenizer,
                     summary);
  int64_t done = 0, total = 0;
  for (const std::string& file : files) {
    std::error_code unreadable;  // reported when the file's turn comes
    const auto size = std::filesystem::file_size(file, unreadable);
    if (!unreadable) total += static_cast<int64_t>(size);
  }
  try {
    for (const std::string& file : files) {
      import_file(file, options, tokenizer, writer, [&](int64_t bytes) {
        progress({done + bytes, total, summary.documents, summary.tokens});
      });
      std::error_code gone;
      if (const auto size = std::filesystem::file_size(file, gone); !gone) done += static_cast<int64_t>(size);
    }
    writer.finish();
    if (summary.tokens == 0) throw DataError(options.inputs.front() + ": holds no tokens");
  } catch (...) {
    remove_unfinished(options.output, {options.split});
    throw;
  }
  const BuildJournal journal{.splits = {writer.keep()}};
  journal.commit(options.output);
  return summary;
}

}  // namespace trireme
