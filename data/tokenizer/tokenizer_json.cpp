#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_bpe.h"

namespace trireme {

namespace {

// GPT-2's printable alphabet: a visible Latin-1 byte is written as itself, the 68 others as U+0100 and up, in order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int point = visible ? byte : next++;
      auto& out = written_[static_cast<size_t>(byte)];
      if (point < 0x80) {
        out = {static_cast<char>(point)};
      } else {
        out = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
      }
      bytes_.emplace(out, static_cast<char>(byte));
    }
  }
  std::string write(std::string_view bytes) const {
    std::string out;
    for (const char c : bytes) out += written_[static_cast<uint8_t>(c)];
    return out;
  }
  // False where `written` has a character that stands for no byte.
  bool read(std::string_view written, std::string& bytes) const {
    bytes.clear();
    while (!written.empty()) {
      const auto found = bytes_.find(std::string(written.substr(0, utf8_character(written))));
      if (found == bytes_.end()) return false;
      bytes += found->second;
      written.remove_prefix(found->first.size());
    }
    return true;
  }

 private:
  std::array<std::string, 256> written_;
  std::unordered_map<std::string, char> bytes_;
};

// For messages: JSON's escapes keep it on one line.
std::string shown(const Json& value) { return value.dump({.sorted = true, .ascii = true}).substr(0, 60); }

class Reader {
 public:
  Reader(const std::string& name, const TokenizerNeighbours& beside) : name_(name), beside_(beside) {}

  Bpe read(const Json& root) {
    if (!root.is_object()) fail("is not a tokenizer: its JSON is no object");
    if (!root.empty() && std::ranges::all_of(root.members(), [](const auto& member) { return member.second.is_integer(); }))
      fail("is a vocabulary alone: its merges must lie beside it, merges.txt of vocab.json, NAME-merges.txt of NAME-vocab.json");
    const Json& model = member(root, "model", "");
    refuse_pieces(root, model);
    // Files from before there were other models do not say it, GPT-2's among them.
    if (!model.is_object() || model.value("type", Json("BPE")) != "BPE") fail("model.type must be \"BPE\"");
    refuse_settings(model);
    read_normalizer(root);
    read_words(root);
    check_post_processor(root);
    byte_level(root, "decoder");
    read_added(root);
    read_vocab(model);
    read_merges(model);
    return std::move(bpe_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(name_ + ": " + what); }

  const Json& member(const Json& of, const char* key, const char* where) const {
    const auto found = of.find(key);
    if (found == nullptr) fail(text("has no ", where, key));
    return *found;
  }

  // `of`.`key` must be absent, null or one of `allowed`.
  void only(const Json& of, const char* where, const char* key, std::initializer_list<Json> allowed) const {
    const auto found = of.find(key);
    if (found == nullptr || found->is_null()) return;
    for (const Json& value : allowed)
      if (*found == value) return;
    fail(text(where, key, " = ", shown(*found), " is not supported"));
  }

  void byte_level(const Json& root, const char* key) const {
    const auto found = root.find(key);
    if (found == nullptr || found->is_null()) fail(text("has no ", key, "; ByteLevel is supported"));
    if (!found->is_object() || found->value("type", Json()) != "ByteLevel") fail(text(key, " must be of type \"ByteLevel\""));
  }

  // What SentencePiece's models have become in this format, of which their own is read.
  void refuse_pieces(const Json& root, const Json& model) const {
    std::string sign;
    if (model.is_object() && model.value("type", Json()) == "Unigram") sign = "model.type = \"Unigram\"";
    if (model.is_object() && model.value("byte_fallback", Json()) == true) sign = "model.byte_fallback = true";
    for (const auto& [key, list] : {std::pair("pre_tokenizer", "pretokenizers"), std::pair("decoder", "decoders")})
      for (const Json& part : parts(root, key, list))
        if (part.value("type", Json()) == "Metaspace") sign = text(key, " of type \"Metaspace\"");
    if (sign.empty()) return;
    fail(text("is a SentencePiece model in another form (", sign, "), of which the tokenizer.model itself is read: ",
              beside_.sentencepiece.empty() ? "none lies beside it; models are published with theirs"
                                            : "give " + beside_.sentencepiece + ", which lies beside it"));
  }

  void refuse_settings(const Json& model) {
    only(model, "model.", "dropout", {0.0});
    only(model, "model.", "continuing_subword_prefix", {""});
    only(model, "model.", "end_of_word_suffix", {""});
    only(model, "model.", "byte_fallback", {false});
    only(model, "model.", "ignore_merges", {false, true});
    bpe_.whole_words = model.value("ignore_merges", Json(false)) == true;
  }

  // The parts of a sequence, or the one thing that `key` is.
  std::vector<Json> parts(const Json& root, const char* key, const char* list) const {
    const auto found = root.find(key);
    if (found == nullptr || found->is_null()) return {};
    if (!found->is_object()) fail(text(key, " is no object"));
    if (found->value("type", Json()) != "Sequence") return {*found};
    const Json& all = member(*found, list, (std::string(key) + ".").c_str());
    if (!all.is_array()) fail(text(key, ".", list, " is no list"));
    for (const Json& part : all)
      if (!part.is_object()) fail(text(key, ".", list, " has a bad entry"));
    return all;
  }

  void read_normalizer(const Json& root) {
    for (const Json& part : parts(root, "normalizer", "normalizers")) {
      if (part.value("type", Json()) != "NFC") fail(text("normalizer ", shown(part), " is not supported; NFC is"));
      bpe_.compose = true;
    }
  }

  std::string split_pattern(const Json& split) const {
    const Json& pattern = member(split, "pattern", "pre_tokenizer.");
    only(split, "pre_tokenizer.", "behavior", {"Isolated"});
    only(split, "pre_tokenizer.", "invert", {false});
    if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()) return pattern["Regex"];
    if (!pattern.is_object() || !pattern.contains("String") || !pattern["String"].is_string())
      fail("pre_tokenizer.pattern must be a Regex or a String");
    std::string escaped;
    for (const char c : pattern["String"].string()) {
      const auto byte = static_cast<uint8_t>(c);
      const bool plain = byte >= 0x80 || byte < 0x21 || std::isalnum(byte) != 0;
      escaped += plain ? std::string{c} : std::string{'\\', c};
    }
    return escaped;
  }

  void read_words(const Json& root) {
    bool bytes = false;
    bpe_.patterns.clear();
    for (const Json& part : parts(root, "pre_tokenizer", "pretokenizers")) {
      const Json type = part.value("type", Json());
      if (bytes) fail("pre_tokenizer has something behind ByteLevel");
      if (type == "Split") {
        bpe_.patterns.push_back(split_pattern(part));
      } else if (type == "Digits") {
        bpe_.patterns.push_back(part.value("individual_digits", Json(false)) == true ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "ByteLevel") {
        bytes = true;
        if (part.value("add_prefix_space", Json(true)) != false) fail("pre_tokenizer.add_prefix_space must be false");
        only(part, "pre_tokenizer.", "use_regex", {true, false});
        if (part.value("use_regex", Json(true)) == true) bpe_.patterns.push_back(patterns::gpt2);
      } else {
        fail(text("pre_tokenizer of type ", shown(type), " is not supported; Split, Digits and ByteLevel are"));
      }
    }
    if (!bytes) fail("has no pre_tokenizer of type \"ByteLevel\"");
  }

  // What these add to the tokens of a text is left to whoever asks for it.
  void check_post_processor(const Json& root) const {
    for (const Json& part : parts(root, "post_processor", "processors"))
      if (const Json type = part.value("type", Json()); type != "ByteLevel" && type != "TemplateProcessing")
        fail(text("post_processor of type ", shown(type), " is not supported; ByteLevel and TemplateProcessing are"));
  }

  int32_t id_of(const Json& value, const std::string& token) const {
    if (!value.is_integer() || value < 0 || value >= (1 << 30)) fail("the id of token " + shown(token) + " is no id");
    return value.get<int32_t>();
  }

  void read_added(const Json& root) {
    const auto added = root.find("added_tokens");
    if (added != nullptr && !added->is_array()) fail("added_tokens is no list");
    if (added != nullptr) {
      for (const Json& entry : *added) {
        if (!entry.is_object() || !member(entry, "content", "added_tokens[].").is_string()) fail("added_tokens has a bad entry");
        const std::string content = entry["content"].get<std::string>();
        const bool special = entry.value("special", Json(true)) != false;
        if (!special)
          for (const char* key : {"lstrip", "rstrip", "single_word"}) only(entry, "added_tokens[].", key, {false});
        const bool ascii = std::all_of(content.begin(), content.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
        if (!special && bpe_.compose && !ascii) only(entry, "added_tokens[].", "normalized", {false});
        if (special_.contains(content) || found_.contains(content)) fail("added token " + shown(content) + " is there twice");
        (special ? special_ : found_).emplace(content, id_of(member(entry, "id", "added_tokens[]."), content));
      }
    }
    choose_end_of_document();
  }

  void choose_end_of_document() {
    std::string tried;
    for (const std::string& written : {std::string(kEndOfText), std::string("<|end_of_text|>"), std::string("</s>"),
                                       std::string("<\xef\xbd\x9c"
                                                   "end\xe2\x96\x81"
                                                   "of\xe2\x96\x81"
                                                   "sentence\xef\xbd\x9c>"),
                                       beside_.eos_token}) {
      if (written.empty()) continue;
      if (const auto end = special_.find(written); end != special_.end()) {
        bpe_.end_of_document = end->second;
        return;
      }
      tried += (tried.empty() ? "'" : ", '") + written + "'";
    }
    fail(text("has none of the special tokens ", tried,
              ", and so none to end documents with: name the one that does as {\"eos_token\": \"...\"} in a tokenizer_config.json "
              "beside it; its special tokens are ",
              special_written()));
  }

  // For messages: the first of them.
  std::string special_written() const {
    std::string list;
    int count = 0;
    for (const auto& [written, id] : std::map(special_.begin(), special_.end())) {
      if (++count > 8) return list + ", ...";
      list += (list.empty() ? "" : ", ") + shown(written);
    }
    return list.empty() ? "none" : list;
  }

  void read_vocab(const Json& model) {
    const Json& vocab = member(model, "vocab", "model.");
    if (!vocab.is_object()) fail("model.vocab is no object");
    std::unordered_map<int32_t, std::string> by_id;
    const auto add = [&](int32_t id, const std::string& bytes) {
      if (!by_id.emplace(id, bytes).second) fail(text("two tokens have the id ", id));
    };
    std::string bytes;
    for (const auto& [token, value] : vocab.members()) {
      const int32_t id = id_of(value, token);
      const auto special = special_.find(token), found = found_.find(token);
      if (special != special_.end() || found != found_.end()) {
        const int32_t added = special != special_.end() ? special->second : found->second;
        if (added != id) fail(text(shown(token), " is ", id, " in model.vocab, but ", added, " in added_tokens"));
        if (found != found_.end()) ids_.emplace(token, id);
        continue;
      }
      if (token.empty() || !alphabet_.read(token, bytes)) fail("token " + shown(token) + " is not written in the byte alphabet");
      add(id, bytes);
      ids_.emplace(token, id);
    }
    for (const auto& [content, id] : special_) {
      add(id, "");
      bpe_.special.emplace_back(id, content);
    }
    for (const auto& [content, id] : found_) {
      if (content.empty()) fail("added token \"\" is of no bytes");
      add(id, content);
      bpe_.added.push_back(id);
    }
    std::sort(bpe_.special.begin(), bpe_.special.end());
    std::sort(bpe_.added.begin(), bpe_.added.end());
    int32_t highest = -1;
    for (const auto& [id, token] : by_id) highest = std::max(highest, id);
    if (highest >= std::ssize(by_id) * 2 + 1024)
      fail(text("has ids up to ", highest, " for ", by_id.size(), " tokens, which are too many gaps"));
    bpe_.tokens.resize(static_cast<size_t>(highest) + 1);
    for (auto& [id, token] : by_id) bpe_.tokens[static_cast<size_t>(id)] = std::move(token);
  }

  // "left right", or since 2024 ["left", "right"].
  void read_merges(const Json& model) {
    const Json& merges = member(model, "merges", "model.");
    if (!merges.is_array()) fail("model.merges is no list");
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
        fail(text("merge ", bpe_.merges.size(), " is no pair"));
      }
      const auto l = ids_.find(left), r = ids_.find(right);
      if (l == ids_.end() || r == ids_.end())
        fail(text("merge ", bpe_.merges.size(), " joins ", shown(left), " and ", shown(right), ", which are not both tokens"));
      bpe_.merges.emplace_back(l->second, r->second);
    }
  }

  const std::string& name_;
  const TokenizerNeighbours& beside_;
  ByteAlphabet alphabet_;
  std::unordered_map<std::string, int32_t> special_, found_, ids_;  // found_: in texts
  Bpe bpe_{};
};

}  // namespace

Bpe parse_tokenizer_json(std::string_view json, const std::string& name, const TokenizerNeighbours& beside) {
  Json root;
  try {
    root = Json::parse(json);
  } catch (const JsonError& problem) {
    throw DataError(name + ": " + problem.what());
  }
  Bpe bpe = Reader(name, beside).read(root);
  try {
    make_bpe_tokenizer(bpe);
  } catch (const DataError& problem) {
    throw DataError(name + ": " + problem.what());
  }
  return bpe;
}

std::string tokenizer_json(const Bpe& bpe) {
  const ByteAlphabet alphabet;
  const auto byte_level = [](bool cuts) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", cuts}};
  };
  Json words = byte_level(true);
  if (bpe.patterns != Bpe().patterns) {
    Json stages = Json::array();
    for (const std::string& pattern : bpe.patterns)
      stages.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    stages.push_back(byte_level(false));
    words = Json{{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
  }
  std::vector<std::string> written;
  for (const std::string& token : bpe.tokens) written.push_back(alphabet.write(token));
  Json added = Json::array(), vocab = Json::object(), merges = Json::array();
  const auto add = [&](int32_t id, const std::string& content, bool special) {
    written[static_cast<size_t>(id)] = content;
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  };
  for (const auto& [id, content] : bpe.special) add(id, content, true);
  for (const int32_t id : bpe.added) add(id, bpe.tokens[static_cast<size_t>(id)], false);
  for (size_t id = 0; id < written.size(); ++id)
    if (!written[id].empty() && !vocab.add(written[id], id))
      throw DataError(text("token ", id, " and another are both written ", shown(written[id])));
  for (const auto& [left, right] : bpe.merges)
    merges.push_back(written[static_cast<size_t>(left)] + " " + written[static_cast<size_t>(right)]);
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", bpe.whole_words},
                   {"vocab", std::move(vocab)},
                   {"merges", std::move(merges)}};
  const Json root{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", std::move(added)},
                  {"normalizer", bpe.compose ? Json{{"type", "NFC"}} : Json()},
                  {"pre_tokenizer", std::move(words)},
                  {"post_processor", nullptr},
                  {"decoder", byte_level(true)},
                  {"model", std::move(model)}};
  return root.dump({.indent = 1, .sorted = true, .strict = true}) + "\n";
}

}  // namespace trireme
