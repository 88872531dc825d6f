#include "data/tokenizer_bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "data/pair_map.h"
#include "data/tokenizer_words.h"
#include "kernels/check.h"

namespace trireme {

namespace {

struct Merge {
  int32_t rank;
  int32_t at;      // index of the left part's piece
  TokenPair pair;  // as it was when queued: stale when a part has changed since
  bool operator>(const Merge& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

struct Piece {
  int32_t token;  // -1: swallowed by the piece before it
  int32_t previous, next;
};

struct HashOfWord {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return XXH3_64bits(word.data(), word.size()); }
};

// What one thread needs to encode; words seen before are not merged again.
struct Scratch {
  static constexpr size_t kLongestKept = 64, kMostKept = 4 << 20;  // bytes of a word; tokens of all words, about 100 MB at worst

  WordCutter cutter;
  std::vector<Piece> pieces;
  std::vector<Merge> queue;  // a heap, the lowest rank first, then the leftmost
  std::unordered_map<std::string, std::pair<uint32_t, uint32_t>, HashOfWord, std::equal_to<>> known;  // word -> range of kept
  std::vector<int32_t> kept;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(Bpe bpe);

  void encode(std::string_view bytes, std::vector<int32_t>& tokens) const override;
  using Tokenizer::encode;
  std::string_view bytes_of(int32_t token) const override { return bpe_.tokens[static_cast<size_t>(token)]; }
  int32_t vocab_size() const override { return static_cast<int32_t>(bpe_.tokens.size()); }
  int32_t end_of_document() const override { return bpe_.end_of_document; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  void merge(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void push(Scratch& scratch, int32_t at) const;
  std::string make_fingerprint() const;

  Bpe bpe_;
  std::array<int32_t, 256> token_of_byte_;
  PairMap ranks_;
  std::vector<int32_t> merged_;  // by rank: the token a merge makes
  std::string fingerprint_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // as many as there were threads at once
};

BpeTokenizer::BpeTokenizer(Bpe bpe) : bpe_(std::move(bpe)) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < bpe_.tokens.size(); ++id)
    if (!bpe_.tokens[id].empty()) ids.emplace(bpe_.tokens[id], static_cast<int32_t>(id));
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&c, 1));
    if (found == ids.end()) throw DataError(text("the tokenizer has no token for byte ", byte));
    token_of_byte_[static_cast<size_t>(byte)] = found->second;
  }
  for (size_t rank = 0; rank < bpe_.merges.size(); ++rank) {
    const auto [left, right] = bpe_.merges[rank];
    const auto part = [&](int32_t id) { return 0 <= id && id < vocab_size() && !bpe_.tokens[static_cast<size_t>(id)].empty(); };
    if (!part(left) || !part(right)) throw DataError(text("merge ", rank, " joins parts that are no tokens"));
    const auto found = ids.find(bpe_.tokens[static_cast<size_t>(left)] + bpe_.tokens[static_cast<size_t>(right)]);
    if (found == ids.end()) throw DataError(text("merge ", rank, " makes no token of the vocabulary"));
    if (ranks_.insert(pair_of(left, right), static_cast<int32_t>(rank)) != static_cast<int32_t>(rank))
      throw DataError(text("merge ", rank, " repeats an earlier one"));
    merged_.push_back(found->second);
  }
  fingerprint_ = make_fingerprint();
}

std::string BpeTokenizer::make_fingerprint() const {
  XXH64_hash_t hash = static_cast<XXH64_hash_t>(bpe_.end_of_document);
  for (const std::string& token : bpe_.tokens) hash = XXH3_64bits_withSeed(token.data(), token.size(), hash);
  for (const auto& [left, right] : bpe_.merges) {
    const TokenPair pair = pair_of(left, right);
    hash = XXH3_64bits_withSeed(&pair, sizeof pair, hash);
  }
  std::string hex(16, '0');
  for (size_t i = 0; i < 16; ++i) hex[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  return "bpe-" + std::to_string(vocab_size()) + "-" + hex;
}

void BpeTokenizer::encode(std::string_view bytes, std::vector<int32_t>& tokens) const {
  std::unique_ptr<Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      scratch = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (scratch == nullptr) scratch = std::make_unique<Scratch>();
  scratch->cutter.start(bytes);
  for (std::string_view word; scratch->cutter.next(word);) {
    const auto found = scratch->known.find(word);
    if (found != scratch->known.end()) {
      const auto [begin, end] = found->second;
      tokens.insert(tokens.end(), scratch->kept.begin() + begin, scratch->kept.begin() + end);
      continue;
    }
    const size_t before = tokens.size();
    merge(word, *scratch, tokens);
    if (word.size() > Scratch::kLongestKept) continue;
    if (scratch->kept.size() > Scratch::kMostKept) {
      scratch->known.clear();
      scratch->kept.clear();
    }
    const auto begin = static_cast<uint32_t>(scratch->kept.size());
    scratch->kept.insert(scratch->kept.end(), tokens.begin() + static_cast<ptrdiff_t>(before), tokens.end());
    scratch->known.emplace(word, std::pair(begin, static_cast<uint32_t>(scratch->kept.size())));
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

void BpeTokenizer::push(Scratch& s, int32_t at) const {
  const Piece& left = s.pieces[static_cast<size_t>(at)];
  if (left.next < 0) return;
  const TokenPair pair = pair_of(left.token, s.pieces[static_cast<size_t>(left.next)].token);
  const int32_t rank = ranks_.find(pair);
  if (rank < 0) return;
  s.queue.push_back({rank, at, pair});
  std::push_heap(s.queue.begin(), s.queue.end(), std::greater<>());
}

// Joins the pair of lowest rank, the leftmost first, until none is left: O(n log n) for a word of n bytes.
void BpeTokenizer::merge(std::string_view word, Scratch& s, std::vector<int32_t>& tokens) const {
  const auto n = static_cast<int32_t>(word.size());
  s.pieces.clear();
  s.queue.clear();
  for (int32_t i = 0; i < n; ++i)
    s.pieces.push_back({token_of_byte_[static_cast<uint8_t>(word[static_cast<size_t>(i)])], i - 1, i + 1 < n ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < n; ++i) push(s, i);
  while (!s.queue.empty()) {
    const Merge best = s.queue.front();
    std::pop_heap(s.queue.begin(), s.queue.end(), std::greater<>());
    s.queue.pop_back();
    Piece& left = s.pieces[static_cast<size_t>(best.at)];
    if (left.token < 0 || left.next < 0) continue;
    Piece& right = s.pieces[static_cast<size_t>(left.next)];
    if (pair_of(left.token, right.token) != best.pair) continue;
    left.token = merged_[static_cast<size_t>(best.rank)];
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) s.pieces[static_cast<size_t>(left.next)].previous = best.at;
    push(s, best.at);
    if (left.previous >= 0) push(s, left.previous);
  }
  for (int32_t i = 0; i >= 0; i = s.pieces[static_cast<size_t>(i)].next) tokens.push_back(s.pieces[static_cast<size_t>(i)].token);
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(Bpe bpe) { return std::make_unique<BpeTokenizer>(std::move(bpe)); }

}  // namespace trireme
