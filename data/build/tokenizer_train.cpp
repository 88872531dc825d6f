#include "data/build/tokenizer_train.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "data/documents/list_files.h"
#include "data/tokenizer/pair_map.h"
#include "data/tokenizer/tokenizer_words.h"

namespace trireme {

namespace {

struct HashOfCountedWord {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};
using WordCounts = std::unordered_map<std::string, int64_t, HashOfCountedWord, std::equal_to<>>;

void count_words(std::string_view passage, WordCutter& cutter, WordCounts& counts) {
  cutter.start(passage);
  for (std::string_view word; cutter.next(word);) {
    const auto found = counts.find(word);
    if (found != counts.end()) {
      ++found->second;
    } else {
      counts.emplace(word, 1);
    }
  }
}

// Chooses what is counted, so that it has about `limit` bytes: of files an even sample of the passages, of standard input, whose
// size is not known, the first ones. The documents are of either.
class TextSample {
 public:
  TextSample(const Documents& documents, int64_t limit) : documents_(documents), limit_(limit) {}

  void choose(std::vector<Passage>& batch) {
    if (documents_.bytes_total() > 0) return choose_evenly(batch);
    size_t taken = 0;
    for (; taken < batch.size() && seen_ < limit_; ++taken) seen_ += std::ssize(batch[taken].text);
    cut_ = taken < batch.size();
    batch.resize(taken);
  }
  int64_t seen() const { return seen_; }  // bytes of text among which was chosen
  bool cut() const { return cut_; }       // the rest of the text is not wanted

 private:
  void choose_evenly(std::vector<Passage>& batch) {
    for (const Passage& passage : batch) seen_ += std::ssize(passage.text);
    // Share of all text, estimated from what the files have given so far: they may be packed.
    const double share = static_cast<double>(limit_) / static_cast<double>(std::max<int64_t>(seen_, 1)) *
                         static_cast<double>(documents_.bytes_read()) / static_cast<double>(documents_.bytes_total());
    std::erase_if(batch, [&](const Passage&) { return unit(philox64(key_, ordinal_++)) >= share; });
  }

  const Documents& documents_;
  const int64_t limit_;
  const uint64_t key_ = stream_key(0, "tokenizer sample");
  uint64_t ordinal_ = 0;
  int64_t seen_ = 0;
  bool cut_ = false;
};

using ReportProgress = std::function<void(const TokenizerProgress&)>;

// Counts words; the result gets how much was read.
class WordReader {
 public:
  WordReader(const TokenizerTraining& training, TokenizerResult& result, const ReportProgress& progress)
      : training_(training),
        result_(result),
        progress_(progress),
        patterns_(result.bpe.patterns),
        counts_(static_cast<size_t>(omp_get_max_threads())) {
    while (cutters_.size() < counts_.size()) cutters_.emplace_back(patterns_);
  }

  // Reads all inputs. Files are sampled evenly, whether there is standard input or not.
  void read_inputs() {
    std::vector<std::string> files = list_files(training_.inputs);
    bytes_known_ = std::erase(files, kStandardInput) == 0;
    if (!files.empty()) read(std::move(files));
    if (!bytes_known_) read({std::string(kStandardInput)});
  }

  // Distinct words with their counts, sorted.
  std::vector<std::pair<std::string, int64_t>> take() {
    for (size_t thread = 1; thread < counts_.size(); ++thread) {
      for (const auto& [word, count] : counts_[thread]) counts_[0][word] += count;
      counts_[thread] = {};
    }
    std::vector<std::pair<std::string, int64_t>> words(counts_[0].begin(), counts_[0].end());
    std::sort(words.begin(), words.end());
    return words;
  }

 private:
  // Files, or standard input alone.
  void read(std::vector<std::string> inputs) {
    Documents documents(std::move(inputs), training_.documents);
    TextSample sample(documents, training_.text_limit);
    while (!sample.cut()) {
      std::vector<Passage> batch = documents.next(8 << 20);
      if (batch.empty()) break;
      sample.choose(batch);
      add_words(batch);
      const int64_t bytes = bytes_read_ + documents.bytes_read();
      progress_({bytes, bytes_known_ ? documents.bytes_total() : 0, 0, training_.vocab});
    }
    bytes_read_ += documents.bytes_read();
    result_.skipped += documents.problems().count;
    std::ranges::copy(documents.problems().first, std::back_inserter(result_.problems));
    result_.all_text_bytes += sample.seen();
    if (sample.cut())
      result_.problems.push_back(text("standard input: the first ", sample.seen(), " bytes of its text were used: the limit is ",
                                      training_.text_limit, ", and an even sample needs files"));
  }
  void add_words(const std::vector<Passage>& batch) {
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto thread = static_cast<size_t>(omp_get_thread_num());
      try {
        count_words(batch[i].text, cutters_[thread], counts_[thread]);
      } catch (...) {
#pragma omp critical(words_that_cannot_be_counted)
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (const Passage& passage : batch) {
      result_.documents += passage.starts ? 1 : 0;
      result_.text_bytes += static_cast<int64_t>(passage.text.size());
    }
  }

  const TokenizerTraining& training_;
  TokenizerResult& result_;
  const ReportProgress& progress_;
  const WordPatterns patterns_;
  std::vector<WordCounts> counts_;  // by thread
  std::vector<WordCutter> cutters_;
  bool bytes_known_ = true;
  int64_t bytes_read_ = 0;  // of inputs that are read
};

std::vector<std::pair<std::string, int64_t>> read_words(const TokenizerTraining& training, TokenizerResult& result,
                                                        const ReportProgress& progress) {
  WordReader reader(training, result, progress);
  reader.read_inputs();
  return reader.take();
}

// All distinct words as sequences of tokens, and for each adjacent pair how often it stands and in which words.
class Merger {
 public:
  explicit Merger(const std::vector<std::pair<std::string, int64_t>>& words) {
    for (const auto& [word, count] : words) {
      begins_.push_back(tokens_.size());
      lengths_.push_back(static_cast<uint32_t>(word.size()));
      counts_.push_back(count);
      for (const char c : word) tokens_.push_back(static_cast<uint8_t>(c));
      const int32_t* at = tokens_.data() + begins_.back();
      for (size_t i = 0; i + 1 < word.size(); ++i) change(at[i], at[i + 1], static_cast<uint32_t>(counts_.size() - 1), count);
    }
    for (const Pair& pair : pairs_) queue_.push({pair.count, pair.tokens});
  }

  // The most frequent pair, of equals the one with the lower ids; false when none stands `min_count` times.
  bool best(int64_t min_count, TokenPair& pair) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const int64_t now = pairs_[static_cast<size_t>(index_.find(top.pair))].count;
      if (now == top.count) {
        pair = top.pair;
        return now >= min_count;
      }
      queue_.pop();  // counted differently by now: where it has grown, a newer candidate is queued
      if (now > 0 && now < top.count) queue_.push({now, top.pair});
    }
    return false;
  }

  void merge(TokenPair pair, int32_t token) {
    const std::vector<uint32_t> words = std::move(pairs_[static_cast<size_t>(index_.find(pair))].words);
    touched_.clear();
    for (const uint32_t word : words) merge_in(word, pair, token);
    pairs_[static_cast<size_t>(index_.find(pair))].count = 0;
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const int32_t index : touched_) {
      const Pair& grown = pairs_[static_cast<size_t>(index)];
      if (grown.count > 0) queue_.push({grown.count, grown.tokens});
    }
  }

 private:
  struct Pair {
    TokenPair tokens;
    int64_t count;
    std::vector<uint32_t> words;  // may hold words it has left since
  };
  struct Candidate {
    int64_t count;
    TokenPair pair;
    bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : pair > other.pair; }
  };

  // A pair of `word` has come or gone.
  void change(int32_t left, int32_t right, uint32_t word, int64_t count) {
    const TokenPair tokens = pair_of(left, right);
    const auto fresh = static_cast<int32_t>(pairs_.size());
    const int32_t index = index_.insert(tokens, fresh);
    if (index == fresh) pairs_.push_back({tokens, 0, {}});
    Pair& pair = pairs_[static_cast<size_t>(index)];
    pair.count += count;
    if (count < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    touched_.push_back(index);
  }

  void merge_in(uint32_t word, TokenPair pair, int32_t token) {
    int32_t* at = tokens_.data() + begins_[word];
    const uint32_t n = lengths_[word];
    const int64_t count = counts_[word];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; ++kept) {
      if (i + 1 == n || pair_of(at[i], at[i + 1]) != pair) {
        at[kept] = at[i++];
        continue;
      }
      if (kept > 0) {
        change(at[kept - 1], at[i], word, -count);
        change(at[kept - 1], token, word, count);
      }
      if (i + 2 < n) {
        change(at[i + 1], at[i + 2], word, -count);
        change(token, at[i + 2], word, count);
      }
      at[kept] = token;
      i += 2;
    }
    lengths_[word] = kept;
  }

  std::vector<int32_t> tokens_;    // of all words, one after the other
  std::vector<size_t> begins_;     // by word
  std::vector<uint32_t> lengths_;  // by word
  std::vector<int64_t> counts_;    // by word
  PairMap index_;                  // pair -> index in pairs_
  std::vector<Pair> pairs_;
  std::vector<int32_t> touched_;  // pairs that grew during a merge
  std::priority_queue<Candidate> queue_;
};

// ConfigError for what cannot be a special token beside the others.
void check_special(const TokenizerTraining& training) {
  const WordPatterns patterns({pattern_named(training.pattern)});
  WordCutter cutter(patterns);
  std::unordered_set<std::string> known{kEndOfText};
  for (const std::string& token : training.special) {
    if (token.empty() || utf8_prefix(token) != token.size())
      throw ConfigError(text("special token '", token, "': must be text in UTF-8, and not empty"));
    if (!known.insert(token).second) throw ConfigError(text("special token '", token, "': is there already"));
    cutter.start(token);
    std::string_view word;
    if (cutter.next(word) && word.size() == token.size())
      throw ConfigError(
          text("special token '", token, "': is a word that texts could give, too; give it signs, as in <|", token, "|>"));
  }
}

}  // namespace

TokenizerResult train_tokenizer(const TokenizerTraining& training, const ReportProgress& progress) {
  const int64_t least = 257 + std::ssize(training.special);
  if (training.vocab < least || training.vocab > (1 << 24))
    throw ConfigError(
        text("a vocabulary of ", training.vocab, " entries: ", least, " (the bytes and the special tokens) to 16777216"));
  check_special(training);
  TokenizerResult result{};
  result.bpe.patterns = {pattern_named(training.pattern)};
  const auto words = read_words(training, result, progress);
  if (words.empty()) throw DataError("there is no text to train a tokenizer on: " + training.inputs.front());
  result.distinct_words = static_cast<int64_t>(words.size());
  for (const auto& [word, count] : words) result.words += count;

  Bpe& bpe = result.bpe;
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t byte = 0; byte < 256; ++byte) ids.emplace(bpe.tokens.emplace_back(1, static_cast<char>(byte)), byte);
  PairMap merged;
  Merger merger(words);
  const int64_t learnt = training.vocab - 1 - std::ssize(training.special);
  for (TokenPair pair; std::ssize(bpe.tokens) < learnt && merger.best(training.min_count, pair);) {
    const int32_t left = left_of(pair), right = right_of(pair), fresh = static_cast<int32_t>(bpe.tokens.size());
    // Two merges may spell the same token; a merged pair may come up again where such a token is made later.
    const std::string bytes = bpe.tokens[static_cast<size_t>(left)] + bpe.tokens[static_cast<size_t>(right)];
    const int32_t token = ids.emplace(bytes, fresh).first->second;
    if (token == fresh) bpe.tokens.push_back(bytes);
    if (merged.find(pair) < 0) bpe.merges.emplace_back(left, right);
    merged.insert(pair, token);
    merger.merge(pair, token);
    if (bpe.merges.size() % 256 == 0) progress({result.text_bytes, result.text_bytes, fresh, training.vocab});
  }
  bpe.end_of_document = static_cast<int32_t>(bpe.tokens.size());
  const auto add_special = [&](const std::string& written) {
    bpe.special.emplace_back(static_cast<int32_t>(bpe.tokens.size()), written);
    bpe.tokens.emplace_back();
  };
  add_special(kEndOfText);
  for (const std::string& written : training.special) add_special(written);
  return result;
}

}  // namespace trireme
