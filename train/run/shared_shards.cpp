#include "train/run/shared_shards.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "parallel/host_collectives.h"

namespace trireme {

namespace {

constexpr int64_t kFew = 64;  // shards that each rank opens, so that a file that a node lacks is missed at the start

// Bytes with their number in front.
void append(std::string& words, const std::string& bytes) { words += std::to_string(bytes.size()) + ' ' + bytes; }
std::string next(const std::string& words, size_t& at) {
  const size_t end = words.find(' ', at), count = std::stoull(words.substr(at, end - at));
  at = end + 1 + count;
  return words.substr(end + 1, count);
}

std::string words_of(const Corpus& corpus) {
  std::string words;
  for (const ShardReader& shard : corpus.shards()) {
    const KnownShard known = shard.known();
    append(words, known.path), append(words, known.header), append(words, std::to_string(known.file_bytes));
  }
  return words;
}

std::vector<KnownShard> shards_in(const std::string& words) {
  std::vector<KnownShard> shards;
  for (size_t at = 0; at < words.size();) {
    KnownShard& known = shards.emplace_back();
    known.path = next(words, at), known.header = next(words, at), known.file_bytes = std::stoll(next(words, at));
  }
  return shards;
}

// The first byte of a problem says whose it is.
constexpr char kOfConfig = 'c', kOfData = 'd';

}  // namespace

Corpus open_shared(const Comm& all, const std::function<Corpus()>& open,
                   const std::function<Corpus(const std::vector<KnownShard>&)>& from_known) {
  if (all.size() == 1) return open();
  if (all.rank() == 0) {
    try {
      Corpus corpus = open();
      broadcast(all, Outcome{.words = std::ssize(corpus.shards()) > kFew ? words_of(corpus) : ""});
      return corpus;
    } catch (const ConfigError& error) {
      broadcast(all, Outcome{.problem = kOfConfig + std::string(error.what())});
      throw;
    } catch (const DataError& error) {
      broadcast(all, Outcome{.problem = kOfData + std::string(error.what())});
      throw;
    }
  }
  const Outcome of_first = broadcast(all, Outcome{});
  if (of_first.failed()) {
    if (of_first.problem.front() == kOfConfig) throw ConfigError(of_first.problem.substr(1));
    throw DataError(of_first.problem.substr(1));
  }
  return of_first.words.empty() ? open() : from_known(shards_in(of_first.words));
}

}  // namespace trireme
