#include "data/tokenizer/tokenizer_json_tokens.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"

namespace trireme {

namespace {

class TokenReader {
 public:
  TokenReader(const TokenizerJsonMembers& in, const std::string& eos_token, Bpe& bpe) : in_(in), eos_token_(eos_token), bpe_(bpe) {}

  void read_added(const Json& root);
  void read_vocab(const Json& model);
  void read_merges(const Json& model);

 private:
  int32_t id_of(const Json& value, const std::string& token) const;
  void add(const Json& entry);
  void choose_end_of_document();
  std::string special_written() const;

  const TokenizerJsonMembers& in_;
  const std::string& eos_token_;
  Bpe& bpe_;
  ByteAlphabet alphabet_;
  std::unordered_map<std::string, int32_t> special_, found_, ids_;  // found_: in texts
};

int32_t TokenReader::id_of(const Json& value, const std::string& token) const {
  if (!value.is_integer() || value < 0 || value >= (1 << 30))
    in_.fail("the id of token " + shown_on_a_line(token) + " is not an id");
  return value.get<int32_t>();
}

void TokenReader::read_added(const Json& root) {
  const auto added = root.find("added_tokens");
  if (added != nullptr && !added->is_array()) in_.fail("added_tokens is not a list");
  if (added != nullptr)
    for (const Json& entry : *added) add(entry);
  choose_end_of_document();
}

void TokenReader::add(const Json& entry) {
  if (!entry.is_object() || !in_.member(entry, "content", "added_tokens[].").is_string()) in_.fail("added_tokens has a bad entry");
  const std::string content = entry["content"].get<std::string>();
  const bool special = entry.value_or_null("special") != false;
  if (!special)
    for (const char* key : {"lstrip", "rstrip", "single_word"}) in_.only(entry, "added_tokens[].", key, {false});
  const bool ascii = std::all_of(content.begin(), content.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (!special && bpe_.compose && !ascii) in_.only(entry, "added_tokens[].", "normalized", {false});
  if (special_.contains(content) || found_.contains(content))
    in_.fail("added token " + shown_on_a_line(content) + " is there twice");
  (special ? special_ : found_).emplace(content, id_of(in_.member(entry, "id", "added_tokens[]."), content));
}

void TokenReader::choose_end_of_document() {
  std::string tried;
  for (const std::string& written : {std::string(kEndOfText), std::string("<|end_of_text|>"), std::string("</s>"),
                                     std::string("<\xef\xbd\x9c"
                                                 "end\xe2\x96\x81"
                                                 "of\xe2\x96\x81"
                                                 "sentence\xef\xbd\x9c>"),
                                     eos_token_}) {
    if (written.empty()) continue;
    if (const auto end = special_.find(written); end != special_.end()) {
      bpe_.end_of_document = end->second;
      return;
    }
    tried += (tried.empty() ? "'" : ", '") + written + "'";
  }
  in_.fail(
      text("has none of the special tokens ", tried,
           ", and so none to end documents with: name the one that does as {\"eos_token\": \"...\"} in a tokenizer_config.json "
           "beside it; its special tokens are ",
           special_written()));
}

// For messages: the first of them.
std::string TokenReader::special_written() const {
  std::string list;
  int count = 0;
  for (const auto& [written, id] : std::map(special_.begin(), special_.end())) {
    if (++count > 8) return list + ", ...";
    list += (list.empty() ? "" : ", ") + shown_on_a_line(written);
  }
  return list.empty() ? "none" : list;
}

void TokenReader::read_vocab(const Json& model) {
  const Json& vocab = in_.member(model, "vocab", "model.");
  if (!vocab.is_object()) in_.fail("model.vocab is not an object");
  std::unordered_map<int32_t, std::string> by_id;
  const auto add = [&](int32_t id, const std::string& bytes) {
    if (!by_id.emplace(id, bytes).second) in_.fail(text("two tokens have the id ", id));
  };
  std::string bytes;
  for (const auto& [token, value] : vocab.members()) {
    const int32_t id = id_of(value, token);
    const auto special = special_.find(token), found = found_.find(token);
    if (special != special_.end() || found != found_.end()) {
      const int32_t added = special != special_.end() ? special->second : found->second;
      if (added != id) in_.fail(text(shown_on_a_line(token), " is ", id, " in model.vocab, but ", added, " in added_tokens"));
      if (found != found_.end()) ids_.emplace(token, id);
      continue;
    }
    if (token.empty() || !alphabet_.read(token, bytes))
      in_.fail("token " + shown_on_a_line(token) + " is not written in the byte alphabet");
    add(id, bytes);
    ids_.emplace(token, id);
  }
  for (const auto& [content, id] : special_) {
    add(id, "");
    bpe_.special.emplace_back(id, content);
  }
  for (const auto& [content, id] : found_) {
    if (content.empty()) in_.fail("added token \"\" is of no bytes");
    add(id, content);
    bpe_.added.push_back(id);
  }
  std::sort(bpe_.special.begin(), bpe_.special.end());
  std::sort(bpe_.added.begin(), bpe_.added.end());
  int32_t highest = -1;
  for (const auto& [id, token] : by_id) highest = std::max(highest, id);
  if (highest >= std::ssize(by_id) * 2 + 1024)
    in_.fail(text("has ids up to ", highest, " for ", by_id.size(), " tokens, which are too many gaps"));
  bpe_.tokens.resize(static_cast<size_t>(highest) + 1);
  for (auto& [id, token] : by_id) bpe_.tokens[static_cast<size_t>(id)] = std::move(token);
}

// "left right", or since 2024 ["left", "right"].
void TokenReader::read_merges(const Json& model) {
  const Json& merges = in_.member(model, "merges", "model.");
  if (!merges.is_array()) in_.fail("model.merges is not a list");
  for (const Json& entry : merges) {
    std::string left, right;
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    } else if (entry.is_string() && entry.string().find(' ') != std::string::npos) {
      const auto& both = entry.string();
      left = both.substr(0, both.find(' '));
      right = both.substr(both.find(' ') + 1);
    } else {
      in_.fail(text("merge ", bpe_.merges.size(), " is not a pair"));
    }
    const auto l = ids_.find(left), r = ids_.find(right);
    if (l == ids_.end() || r == ids_.end())
      in_.fail(text("merge ", bpe_.merges.size(), " joins ", shown_on_a_line(left), " and ", shown_on_a_line(right),
                    ", which are not both tokens"));
    bpe_.merges.emplace_back(l->second, r->second);
  }
}

}  // namespace

void read_json_tokens(const TokenizerJsonMembers& in, const Json& root, const std::string& eos_token, Bpe& bpe) {
  TokenReader reader(in, eos_token, bpe);
  const Json& model = in.member(root, "model", "");
  reader.read_added(root);
  reader.read_vocab(model);
  reader.read_merges(model);
}

}  // namespace trireme
