#include "data/build/inspect.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "data/build/packing.h"
#include "data/documents/chat_template.h"
#include "data/documents/list_files.h"

namespace trireme {

std::vector<ShardInfo> describe_shards(const std::vector<std::string>& paths) {
  std::vector<ShardInfo> infos;
  for (const std::string& path : list_files(paths, ".h5")) {
    const ShardReader shard(path);
    infos.push_back({path, shard.file_bytes(), shard.tokens(), shard.documents(), shard.facts(), shard.trained_tokens(),
                     shard.row(), shard.digest(), chat_template_of(shard).value_or("")});
  }
  return infos;
}

std::vector<ShardVerdict> verify_shards(const std::vector<std::string>& paths, const std::function<void(int64_t, int64_t)>& done) {
  std::vector<ShardVerdict> verdicts;
  const std::vector<std::string> files = list_files(paths, ".h5");
  int64_t read = 0, all = 0;
  std::error_code unreadable;  // reported when the file's turn comes
  const auto size_of = [&](const std::string& path) {
    const auto size = std::filesystem::file_size(path, unreadable);
    return unreadable ? 0 : static_cast<int64_t>(size);
  };
  for (const std::string& path : files) all += size_of(path);
  for (const std::string& path : files) {
    try {
      const ShardReader shard(path);
      shard.verify();
      verdicts.push_back({path, "", shard.digest()});
    } catch (const DataError& problem) {
      verdicts.push_back({path, problem.what(), 0});
    }
    read += size_of(path);
    if (done) done(read, all);
  }
  return verdicts;
}

DocumentLengths document_lengths(const std::vector<std::string>& paths) {
  DocumentLengths lengths;
  std::vector<int64_t> all;
  for (const std::string& path : list_files(paths, ".h5")) {
    const ShardReader shard(path);
    for (int64_t i = shard.first_document(); i < shard.documents(); ++i) {
      const auto [begin, end] = shard.content(i);
      all.push_back(end - begin);
    }
  }
  if (all.empty()) return lengths;
  for (const int64_t length : all) ++lengths.counts[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)) - 1)];
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::nth_element(all.begin(), middle, all.end());
  lengths.documents = std::ssize(all);
  lengths.median = *middle;
  lengths.shortest = std::ranges::min(all);
  lengths.longest = std::ranges::max(all);
  return lengths;
}

int64_t count_cut_documents(const std::vector<std::string>& paths, int64_t context) {
  int64_t cut = 0;
  for (const std::string& path : list_files(paths, ".h5")) {
    const ShardReader shard(path);
    cut += count_cut(shard.document_starts(), shard.tokens(), context);
  }
  return cut;
}

Beginning beginning_of(const ShardReader& shard, int64_t number, const Tokenizer& tokenizer, int64_t most) {
  const auto [begin, end] = shard.content(number);
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(end - begin, most + 1)));
  shard.read(begin, tokens);
  const bool whole = std::ssize(tokens) == end - begin;
  if (!tokens.empty() && tokens.back() == tokenizer.end_of_document()) tokens.pop_back();
  std::string words = tokenizer.decode(tokens);
  const bool cut = !whole || std::ssize(words) > most;
  if (std::ssize(words) > most) words.resize(static_cast<size_t>(most));
  if (cut) words.resize(utf8_prefix(words));
  return {std::move(words), cut};
}

std::vector<SampleDocument> sample_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, int64_t count,
                                             int64_t most) {
  std::vector<ShardReader> shards;
  int64_t documents = 0;
  for (const std::string& path : list_files(paths, ".h5")) {
    const ShardReader& shard = shards.emplace_back(path);
    if (shard.facts().tokenizer != tokenizer.fingerprint())
      throw DataError(path + ": was made with tokenizer " + shard.facts().tokenizer + ", not with " + tokenizer.fingerprint());
    documents += shard.documents();
  }
  std::vector<SampleDocument> samples;
  count = std::min(count, documents);
  int64_t before = 0;  // documents of the shards in front
  for (const ShardReader& shard : shards) {
    const int64_t here = shard.documents();
    for (; std::ssize(samples) < count;) {
      const int64_t number = std::ssize(samples) * documents / count - before;
      if (number >= here) break;
      const auto [begin, end] = shard.content(number);
      auto [words, cut] = beginning_of(shard, number, tokenizer, most);
      samples.push_back({.shard = shard.path(), .text = std::move(words), .number = number, .tokens = end - begin, .cut = cut});
    }
    before += here;
  }
  return samples;
}

}  // namespace trireme
