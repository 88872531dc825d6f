#include "data/tokenizer_bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "data/pair_map.h"
#include "data/tokenizer_words.h"
#include "data/unicode.h"
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
  explicit Scratch(const WordPatterns& patterns) : cutter(patterns) {}
  static constexpr size_t kLongestKept = 64, kMostKept = 4 << 20;  // bytes of a word; tokens of all words, about 100 MB at worst

  WordCutter cutter;
  std::string composed;
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
  void encode_composed(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void merge(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void push(Scratch& scratch, int32_t at) const;
  std::string make_fingerprint() const;

  Bpe bpe_;
  WordPatterns patterns_;
  std::array<int32_t, 256> token_of_byte_;
  PairMap ranks_;
  std::vector<int32_t> merged_;                        // by rank: the token a merge makes; of MergeOrder::by_token it is the rank
  std::unordered_map<std::string_view, int32_t> ids_;  // where words may be tokens
  std::vector<std::pair<std::string_view, int32_t>> added_;  // the longest first
  std::array<bool, 256> begins_added_{};                     // whether one begins with this byte
  std::string fingerprint_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // as many as there were threads at once
};

BpeTokenizer::BpeTokenizer(Bpe bpe) : bpe_(std::move(bpe)), patterns_(bpe_.patterns) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (const int32_t id : bpe_.added) added_.emplace_back(bpe_.tokens[static_cast<size_t>(id)], id);
  std::sort(added_.begin(), added_.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a < b;
  });
  for (const auto& [written, id] : added_) {
    if (written.empty()) throw DataError(text("added token ", id, " is of no bytes"));
    begins_added_[static_cast<uint8_t>(written.front())] = true;
  }
  std::vector<bool> added(bpe_.tokens.size());
  for (const int32_t id : bpe_.added) added[static_cast<size_t>(id)] = true;
  for (const bool now : {false, true})  // of two tokens of the same bytes the one that is not found in the text first
    for (size_t id = 0; id < bpe_.tokens.size(); ++id)
      if (added[id] == now && !bpe_.tokens[id].empty()) ids.emplace(bpe_.tokens[id], static_cast<int32_t>(id));
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
    const int32_t value = bpe_.order == MergeOrder::listed ? static_cast<int32_t>(rank) : found->second;
    if (ranks_.find(pair_of(left, right)) >= 0) throw DataError(text("merge ", rank, " repeats an earlier one"));
    ranks_.insert(pair_of(left, right), value);
    merged_.push_back(found->second);
  }
  if (bpe_.order == MergeOrder::by_token) {
    merged_.resize(bpe_.tokens.size());
    std::iota(merged_.begin(), merged_.end(), 0);
  }
  if (bpe_.whole_words) ids_ = std::move(ids);
  fingerprint_ = make_fingerprint();
}

std::string BpeTokenizer::make_fingerprint() const {
  XXH64_hash_t hash = static_cast<XXH64_hash_t>(bpe_.end_of_document);
  for (const std::string& token : bpe_.tokens) hash = XXH3_64bits_withSeed(token.data(), token.size(), hash);
  for (const auto& [left, right] : bpe_.merges) {
    const TokenPair pair = pair_of(left, right);
    hash = XXH3_64bits_withSeed(&pair, sizeof pair, hash);
  }
  std::string manner;  // nothing for GPT-2's
  if (bpe_.patterns != Bpe().patterns)
    for (const std::string& pattern : bpe_.patterns) manner += pattern + '\n';
  if (bpe_.order == MergeOrder::by_token) manner += "by token\n";
  if (bpe_.whole_words) manner += "whole words\n";
  if (bpe_.compose) manner += "composed\n";
  for (const int32_t id : bpe_.added) manner += std::to_string(id) + '\n';
  if (!manner.empty()) hash = XXH3_64bits_withSeed(manner.data(), manner.size(), hash);
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
  if (scratch == nullptr) scratch = std::make_unique<Scratch>(patterns_);
  size_t from = 0;  // what lies in front of it is encoded
  for (size_t i = 0; i < bytes.size() && !added_.empty(); ++i) {
    if (!begins_added_[static_cast<uint8_t>(bytes[i])]) continue;
    const auto found =
        std::find_if(added_.begin(), added_.end(), [&](const auto& one) { return bytes.substr(i).starts_with(one.first); });
    if (found == added_.end()) continue;
    encode_composed(bytes.substr(from, i - from), *scratch, tokens);
    tokens.push_back(found->second);
    from = i + found->first.size();
    i = from - 1;
  }
  encode_composed(bytes.substr(from), *scratch, tokens);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

void BpeTokenizer::encode_composed(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const {
  if (bpe_.compose && compose(text, scratch.composed)) text = scratch.composed;
  encode_words(text, scratch, tokens);
}

void BpeTokenizer::encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const {
  scratch.cutter.start(text);
  for (std::string_view word; scratch.cutter.next(word);) {
    const auto found = scratch.known.find(word);
    if (found != scratch.known.end()) {
      const auto [begin, end] = found->second;
      tokens.insert(tokens.end(), scratch.kept.begin() + begin, scratch.kept.begin() + end);
      continue;
    }
    const size_t before = tokens.size();
    if (const auto whole = ids_.find(word); whole != ids_.end())
      tokens.push_back(whole->second);
    else
      merge(word, scratch, tokens);
    if (word.size() > Scratch::kLongestKept) continue;
    if (scratch.kept.size() > Scratch::kMostKept) {
      scratch.known.clear();
      scratch.kept.clear();
    }
    const auto begin = static_cast<uint32_t>(scratch.kept.size());
    scratch.kept.insert(scratch.kept.end(), tokens.begin() + static_cast<ptrdiff_t>(before), tokens.end());
    scratch.known.emplace(word, std::pair(begin, static_cast<uint32_t>(scratch.kept.size())));
  }
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
