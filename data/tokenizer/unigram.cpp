#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <charconv>

namespace trireme {

namespace {

using Kind = SentencePieceModel::Kind;
constexpr float kUnknownBelow = 10;  // so much less than the worst piece's is the score of what is unknown
constexpr float kLowest = -100000;   // of a sum

int64_t length_of_character(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

Unigram::Unigram(const SentencePieceModel& model) : ends_{-1}, scores_(model.pieces.size()) {
  float least = 0;
  bool first = true;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.kind != Kind::normal) continue;
    least = first ? piece.score : std::min(least, piece.score);
    first = false;
  }
  unknown_score_ = least - kUnknownBelow;
  if (model.byte_fallback) bytes_.resize(256);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    scores_[i] = piece.kind == Kind::user_defined ? 0 : piece.score;
    if (piece.kind == Kind::normal || piece.kind == Kind::user_defined) add(piece.text, id);
    if (piece.kind == Kind::unknown) unknown_ = id;
    if (piece.kind == Kind::byte && model.byte_fallback) bytes_[byte_of(piece)] = id;
  }
}

void Unigram::add(std::string_view piece, int32_t id) {
  longest_ = std::max(longest_, std::ssize(piece));
  int32_t node = 0;
  for (const char byte : piece) {
    node = next_.insert(pair_of(node, static_cast<uint8_t>(byte)), static_cast<int32_t>(ends_.size()));
    if (node == static_cast<int32_t>(ends_.size())) ends_.push_back(-1);
  }
  ends_[static_cast<size_t>(node)] = id;
}

void Unigram::encode(std::string_view normal, std::vector<int32_t>& tokens) const {
  const auto size = static_cast<int64_t>(normal.size());
  std::vector<Ending> best(normal.size() + 1);  // by the place where they end
  const auto offer = [&](int64_t end, float score, int64_t begin, int32_t piece) {
    Ending& there = best[static_cast<size_t>(end)];
    if (there.begin < 0 || score > there.score) there = {score, begin, piece};
  };
  for (int64_t begin = 0; begin < size;) {
    if (const float low = best[static_cast<size_t>(begin)].score; low < kLowest)
      for (int64_t end = begin; end <= std::min(size, begin + std::max<int64_t>(longest_, 4)); ++end)
        best[static_cast<size_t>(end)].score -= low;
    const float before = best[static_cast<size_t>(begin)].score;
    const int64_t character = std::min(length_of_character(normal[static_cast<size_t>(begin)]), size - begin);
    bool known = false;
    int32_t node = 0;
    for (int64_t at = begin; at < size; ++at) {
      node = next_.find(pair_of(node, static_cast<uint8_t>(normal[static_cast<size_t>(at)])));
      if (node < 0) break;
      const int32_t piece = ends_[static_cast<size_t>(node)];
      if (piece < 0) continue;
      offer(at + 1, before + scores_[static_cast<size_t>(piece)], begin, piece);
      known = known || at + 1 - begin == character;
    }
    if (!known) offer(begin + character, before + unknown_score_, begin, unknown_);
    begin += character;
  }
  std::vector<const Ending*> path;
  std::vector<int64_t> ends;
  for (int64_t end = size; end > 0; end = path.back()->begin) {
    path.push_back(&best[static_cast<size_t>(end)]);
    ends.push_back(end);
  }
  bool unknown_before = false;
  for (size_t i = path.size(); i-- > 0;) {
    const bool unknown = path[i]->piece == unknown_;
    if (unknown && !bytes_.empty())
      for (int64_t at = path[i]->begin; at < ends[i]; ++at)
        tokens.push_back(bytes_[static_cast<uint8_t>(normal[static_cast<size_t>(at)])]);
    else if (!unknown || !unknown_before)
      tokens.push_back(path[i]->piece);
    unknown_before = unknown;
  }
}

}  // namespace trireme
