#include "data/tokenizer/tokenizer_bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <unordered_map>

#include "base/digest.h"
#include "base/error.h"
#include "data/text/unicode.h"
#include "data/tokenizer/pair_map.h"
#include "data/tokenizer/tokenizer_words.h"
#include "data/tokenizer/word_cache.h"

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

// Memory of one thread that encodes; words seen before are not merged again.
struct Scratch {
  explicit Scratch(const WordPatterns& patterns) : cutter(patterns) {}
  WordCutter cutter;
  std::string composed;
  std::vector<Piece> pieces;
  std::vector<Merge> queue;  // a heap, the lowest rank first, then the leftmost
  WordCache known;
  std::thread::id last_user;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(Bpe bpe);

  void encode(std::string_view bytes, std::vector<int32_t>& tokens) const override;
  using Tokenizer::encode;
  std::string_view bytes_of(int32_t token) const override { return bpe_.tokens[static_cast<size_t>(token)]; }
  std::optional<int32_t> special_token(std::string_view written) const override {
    const auto found = std::ranges::find(bpe_.special, written, &std::pair<int32_t, std::string>::second);
    return found == bpe_.special.end() ? std::nullopt : std::optional(found->first);
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(bpe_.tokens.size()); }
  int32_t end_of_document() const override { return bpe_.end_of_document; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  void encode_composed(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void merge_short(std::string_view word, std::vector<int32_t>& tokens) const;
  void merge_long(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const;
  void push(Scratch& scratch, int32_t at) const;
  std::string make_fingerprint() const;
  static constexpr size_t kShort = 48;  // bytes of a word up to which merge_short is the faster

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
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // about as many as there were threads at once
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

// Whether it makes the ids of make_byte_tokenizer, as one that was exported does.
bool is_of_bytes(const Bpe& bpe) {
  bool same = bpe.tokens.size() == 257 && bpe.end_of_document == 256 && bpe.merges.empty() && bpe.added.empty() && !bpe.compose;
  for (size_t byte = 0; same && byte < 256; ++byte) same = bpe.tokens[byte] == std::string(1, static_cast<char>(byte));
  return same;
}

// Leaves out the written forms of special tokens: no text makes them, and reserved ones may be named later, without new shards. An
// empty list of patterns counts as GPT-2's, as in the shards of older versions.
std::string BpeTokenizer::make_fingerprint() const {
  if (is_of_bytes(bpe_)) return "bytes";
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
  return "bpe-" + std::to_string(vocab_size()) + "-" + hex(hash);
}

void BpeTokenizer::encode(std::string_view bytes, std::vector<int32_t>& tokens) const try {
  std::unique_ptr<Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    // This thread's own, whose words lie in its core's cache; another's only where there are as many as threads can run.
    auto found = std::ranges::find(idle_, std::this_thread::get_id(), [](const auto& idle) { return idle->last_user; });
    if (found == idle_.end() && idle_.size() >= std::thread::hardware_concurrency() && !idle_.empty()) --found;
    if (found != idle_.end()) {
      scratch = std::move(*found);
      idle_.erase(found);
    }
  }
  if (scratch == nullptr) scratch = std::make_unique<Scratch>(patterns_);
  scratch->last_user = std::this_thread::get_id();
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
} catch (const DataError& problem) {
  throw DataError((bpe_.name.empty() ? "" : bpe_.name + ": ") + problem.what());
}

void BpeTokenizer::encode_composed(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const {
  if (bpe_.compose && compose(text, scratch.composed)) text = scratch.composed;
  encode_words(text, scratch, tokens);
}

void BpeTokenizer::encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const {
  scratch.cutter.start(text);
  for (std::string_view word; scratch.cutter.next(word);) {
    if (word.size() > WordCache::kLongest) {
      encode_word(word, scratch, tokens);
      continue;
    }
    if (const auto known = scratch.known.find(word); !known.empty()) {
      for (const int32_t token : known) tokens.push_back(token);
      continue;
    }
    const size_t before = tokens.size();
    encode_word(word, scratch, tokens);
    scratch.known.keep(word, std::span(tokens).subspan(before));
  }
}

void BpeTokenizer::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const {
  if (const auto whole = ids_.find(word); whole != ids_.end())
    tokens.push_back(whole->second);
  else if (word.size() <= kShort)
    merge_short(word, tokens);
  else
    merge_long(word, scratch, tokens);
}

// As merge_long, by looking at all pairs each time: faster for as few as these.
void BpeTokenizer::merge_short(std::string_view word, std::vector<int32_t>& tokens) const {
  constexpr int32_t kNone = INT32_MAX;
  std::array<int32_t, kShort> part;   // tokens
  std::array<int32_t, kShort> ranks;  // of part i with the next one; kNone: they are not joined
  size_t n = word.size();
  const auto rank_at = [&](size_t i) {
    const int32_t rank = i + 1 < n ? ranks_.find(pair_of(part[i], part[i + 1])) : -1;
    return rank < 0 ? kNone : rank;
  };
  for (size_t i = 0; i < n; ++i) part[i] = token_of_byte_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i < n; ++i) ranks[i] = rank_at(i);
  while (n > 1) {
    const size_t best =
        static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(n - 1)) - ranks.begin());
    if (ranks[best] == kNone) break;
    part[best] = merged_[static_cast<size_t>(ranks[best])];
    --n;
    for (size_t i = best + 1; i < n; ++i) part[i] = part[i + 1], ranks[i] = ranks[i + 1];
    ranks[best] = rank_at(best);
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
  }
  tokens.insert(tokens.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(n));
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
void BpeTokenizer::merge_long(std::string_view word, Scratch& s, std::vector<int32_t>& tokens) const {
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
