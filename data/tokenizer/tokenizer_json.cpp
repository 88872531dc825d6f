// The half of tokenizer.json that reads: its settings, normalizer, pre-tokenizer and decoder. Its tokens: tokenizer_json_tokens.h.
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_json_tokens.h"

namespace trireme {

namespace {

// Refuses SentencePiece's models in this format; their own is read.
void refuse_pieces(const TokenizerJsonMembers& in, const Json& root, const Json& model, const TokenizerNeighbours& beside) {
  std::string sign;
  if (model.is_object() && model.value_or_null("type") == "Unigram") sign = "model.type = \"Unigram\"";
  if (model.is_object() && model.value_or_null("byte_fallback") == true) sign = "model.byte_fallback = true";
  for (const auto& [key, list] : {std::pair("pre_tokenizer", "pretokenizers"), std::pair("decoder", "decoders")})
    for (const Json& part : in.parts(root, key, list))
      if (part.value_or_null("type") == "Metaspace") sign = text(key, " of type \"Metaspace\"");
  if (sign.empty()) return;
  in.fail(text("is a SentencePiece model in another form (", sign, "), of which the tokenizer.model itself is read: ",
               beside.sentencepiece.empty() ? "none lies beside it; models are published with theirs"
                                            : "give " + beside.sentencepiece + ", which lies beside it"));
}

void refuse_settings(const TokenizerJsonMembers& in, const Json& model, Bpe& bpe) {
  in.only(model, "model.", "dropout", {0.0});
  in.only(model, "model.", "continuing_subword_prefix", {""});
  in.only(model, "model.", "end_of_word_suffix", {""});
  in.only(model, "model.", "byte_fallback", {false});
  in.only(model, "model.", "ignore_merges", {false, true});
  bpe.whole_words = model.value_or_null("ignore_merges") == true;
}

void read_normalizer(const TokenizerJsonMembers& in, const Json& root, Bpe& bpe) {
  for (const Json& part : in.parts(root, "normalizer", "normalizers")) {
    if (part.value_or_null("type") != "NFC") in.fail(text("normalizer ", shown_on_a_line(part), " is not supported; NFC is"));
    bpe.compose = true;
  }
}

std::string split_pattern(const TokenizerJsonMembers& in, const Json& split) {
  const Json& pattern = in.member(split, "pattern", "pre_tokenizer.");
  in.only(split, "pre_tokenizer.", "behavior", {"Isolated"});
  in.only(split, "pre_tokenizer.", "invert", {false});
  if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()) return pattern["Regex"];
  if (!pattern.is_object() || !pattern.contains("String") || !pattern["String"].is_string())
    in.fail("pre_tokenizer.pattern must be a Regex or a String");
  std::string escaped;
  for (const char c : pattern["String"].string()) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = byte >= 0x80 || byte < 0x21 || std::isalnum(byte) != 0;
    escaped += plain ? std::string{c} : std::string{'\\', c};
  }
  return escaped;
}

void read_words(const TokenizerJsonMembers& in, const Json& root, Bpe& bpe) {
  bool bytes = false;
  bpe.patterns.clear();
  for (const Json& part : in.parts(root, "pre_tokenizer", "pretokenizers")) {
    const Json& type = part.value_or_null("type");
    if (bytes) in.fail("pre_tokenizer has something after ByteLevel");
    if (type == "Split") {
      bpe.patterns.push_back(split_pattern(in, part));
    } else if (type == "Digits") {
      bpe.patterns.push_back(part.value_or_null("individual_digits") == true ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      bytes = true;
      if (part.value_or_null("add_prefix_space") != false) in.fail("pre_tokenizer.add_prefix_space must be false");
      in.only(part, "pre_tokenizer.", "use_regex", {true, false});
      if ((!part.contains("use_regex") || part.value_or_null("use_regex") == true)) bpe.patterns.push_back(patterns::gpt2);
    } else {
      in.fail(text("pre_tokenizer of type ", shown_on_a_line(type), " is not supported; Split, Digits and ByteLevel are"));
    }
  }
  if (!bytes) in.fail("has no pre_tokenizer of type \"ByteLevel\"");
}

// Accepts post-processors; the tokens that they add to a text are the caller's to add.
void check_post_processor(const TokenizerJsonMembers& in, const Json& root) {
  for (const Json& part : in.parts(root, "post_processor", "processors"))
    if (const Json& type = part.value_or_null("type"); type != "ByteLevel" && type != "TemplateProcessing")
      in.fail(text("post_processor of type ", shown_on_a_line(type), " is not supported; ByteLevel and TemplateProcessing are"));
}

void check_decoder(const TokenizerJsonMembers& in, const Json& root) {
  const auto found = root.find("decoder");
  if (found == nullptr || found->is_null()) in.fail("has no decoder; ByteLevel is supported");
  if (!found->is_object() || found->value_or_null("type") != "ByteLevel") in.fail("decoder must be of type \"ByteLevel\"");
}

Bpe read_bpe(const TokenizerJsonMembers& in, const Json& root, const TokenizerNeighbours& beside) {
  if (!root.is_object()) in.fail("is not a tokenizer: its JSON is not an object");
  if (!root.empty() && std::ranges::all_of(root.members(), [](const auto& member) { return member.second.is_integer(); }))
    in.fail("is a vocabulary alone: its merges must lie beside it, merges.txt of vocab.json, NAME-merges.txt of NAME-vocab.json");
  const Json& model = in.member(root, "model", "");
  refuse_pieces(in, root, model, beside);
  // Files from before there were other models do not say it, GPT-2's among them.
  if (!model.is_object() || (model.contains("type") && model.value_or_null("type") != "BPE")) in.fail("model.type must be \"BPE\"");
  Bpe bpe{};
  refuse_settings(in, model, bpe);
  read_normalizer(in, root, bpe);
  read_words(in, root, bpe);
  check_post_processor(in, root);
  check_decoder(in, root);
  read_json_tokens(in, root, beside.eos_token, bpe);
  return bpe;
}

}  // namespace

Bpe parse_tokenizer_json(std::string_view json, const std::string& name, const TokenizerNeighbours& beside) {
  Json root;
  try {
    root = Json::parse(json, kTokenizerJson);
  } catch (const JsonError& problem) {
    throw DataError(name + ": " + problem.what());
  }
  return bpe_of_json(root, name, beside);
}

Bpe bpe_of_json(const Json& root, const std::string& name, const TokenizerNeighbours& beside) {
  Bpe bpe = read_bpe(TokenizerJsonMembers(name), root, beside);
  try {
    make_bpe_tokenizer(bpe);
  } catch (const DataError& problem) {
    throw DataError(name + ": " + problem.what());
  }
  bpe.name = name;
  return bpe;
}

}  // namespace trireme
