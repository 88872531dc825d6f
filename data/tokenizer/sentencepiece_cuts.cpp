#include "data/tokenizer/sentencepiece_cuts.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace trireme {

namespace {

// The rules' table is a trie in an array (Yata's double array as Darts-clone lays it out), by which a key's bytes lead to the place
// of its replacement among strings that end in zero.
class Rules {
 public:
  // DataError unless every way through the table stays in it and ends in the strings.
  Rules(const std::string& bytes, const std::string& name) {
    uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    if (size % 1024 != 0 || size == 0 || size >= bytes.size() - 4 || bytes.back() != '\0') fail(name);
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes.data() + 4, size);
    strings_ = std::string_view(bytes).substr(4 + size);
    walk(name);
  }
  bool inside(uint8_t c) const { return inside_[c]; }  // of some key, after its first byte
  bool leads(uint8_t c) const { return leads_[c]; }    // begins a longer one
  bool has(uint8_t c) const { return single_[c].data() != nullptr; }
  std::string_view single(uint8_t c) const { return single_[c]; }  // what the key of this byte alone becomes

 private:
  [[noreturn]] static void fail(const std::string& name) { throw DataError(name + ": its rules of normalisation are damaged"); }
  static bool is_end(uint32_t unit) { return (unit >> 8 & 1) != 0; }
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
  static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }

  void walk(const std::string& name) {
    std::vector<bool> seen(units_.size());
    std::vector<uint32_t> open;
    const auto visit = [&](uint32_t node) {
      if (node >= units_.size()) fail(name);  // of its 256 followers, which differ in their last byte, all are in the table, then
      if (!seen[node]) open.push_back(node);
      seen[node] = true;
    };
    const uint32_t root = offset(units_[0]);
    std::array<uint32_t, 256> starts{};  // after the first byte
    visit(root);
    while (!open.empty()) {
      const uint32_t node = open.back();
      open.pop_back();
      for (uint32_t c = 0; c < 256; ++c) {
        const uint32_t follower = node ^ c, unit = units_[follower];
        if (label(unit) != c) continue;
        const uint32_t next = follower ^ offset(unit);
        visit(next);
        if (node != root) inside_[c] = true;
        if (node == root) starts[c] = next;
        if (!is_end(unit)) continue;
        const uint32_t place = units_[next] & ~(1u << 31);
        if (place >= strings_.size()) fail(name);
        if (node == root) single_[c] = strings_.data() + place;
      }
    }
    for (size_t c = 0; c < leads_.size(); ++c)
      for (uint32_t second = 1; second < 256 && starts[c] != 0; ++second)
        if (label(units_[starts[c] ^ second]) == second) leads_[c] = true;
  }

  std::vector<uint32_t> units_;
  std::string_view strings_;
  std::array<bool, 256> inside_{}, leads_{};
  std::array<std::string_view, 256> single_{};
};

}  // namespace

void SentencePieceCuts::read_rules(const std::string& bytes, const std::string& name) {
  if (bytes.empty()) return;
  const Rules rules(bytes, name);
  for (size_t c = 0; c < becomes_.size(); ++c) {
    const auto byte = static_cast<uint8_t>(c);
    leads_[c] = rules.leads(byte);
    if (rules.has(byte)) becomes_[c] = rules.single(byte).size() == 1 ? rules.single(byte).front() : kOther;
    if (rules.inside(byte) || (becomes_[c] & 0x80) != 0) becomes_[c] = kOther;
  }
}

SentencePieceCuts::SentencePieceCuts(const SentencePieceModel& model, const std::string& name) {
  using Kind = SentencePieceModel::Kind;
  for (size_t c = 0; c < becomes_.size(); ++c) becomes_[c] = static_cast<char>(c);
  read_rules(model.characters, name);
  std::array<std::array<bool, 128>, 128> together{};
  std::array<bool, 128> known{}, defined{};  // defined: what else is a space begins a symbol of the user's
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.kind != Kind::normal && piece.kind != Kind::user_defined && piece.kind != Kind::unused) continue;
    const std::string written = with_spaces(piece.text);
    if (piece.kind == Kind::user_defined && is_space(piece.text.front())) defined[of(piece.text.front())] = true;
    for (size_t i = 1; i < written.size(); ++i)
      if (((written[i - 1] | written[i]) & 0x80) == 0) together[of(written[i - 1])][of(written[i])] = true;
    if (written.size() == 1 && (written[0] & 0x80) == 0 && piece.kind != Kind::unused) known[of(written[0])] = true;
  }
  for (size_t left = 0; left < 128; ++left)
    for (size_t right = 0; right < 128; ++right) {
      const char first = becomes_[left], second = becomes_[right];
      safe_[left][right] = first != kOther && second != kOther && first != ' ' && !together[of(first)][of(second)] &&
                           !together[left][right] && !defined[right] &&
                           (model.byte_fallback || known[of(first)] || known[of(second)]);
    }
}

}  // namespace trireme
