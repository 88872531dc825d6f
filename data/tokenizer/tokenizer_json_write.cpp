// The half of tokenizer.json that writes.
#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer_bpe.h"
#include "data/tokenizer/tokenizer_json_members.h"

namespace trireme {

namespace {

Json byte_level_stage(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", cuts}};
}

// By what text is cut into words.
Json pre_tokenizer_of(const Bpe& bpe) {
  if (bpe.patterns == Bpe().patterns) return byte_level_stage(true);
  Json stages = Json::array();
  for (const std::string& pattern : bpe.patterns)
    stages.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  stages.push_back(byte_level_stage(false));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
}

// Every token as the file writes it, by id; "" for ids that have none.
std::vector<std::string> written_tokens(const Bpe& bpe) {
  const ByteAlphabet alphabet;
  std::vector<std::string> written;
  for (const std::string& token : bpe.tokens) written.push_back(alphabet.write(token));
  for (const auto& [id, content] : bpe.special) written[static_cast<size_t>(id)] = content;
  for (const int32_t id : bpe.added) written[static_cast<size_t>(id)] = bpe.tokens[static_cast<size_t>(id)];
  return written;
}

Json added_tokens_of(const Bpe& bpe) {
  Json added = Json::array();
  const auto add = [&](int32_t id, const std::string& content, bool special) {
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
  return added;
}

Json model_of(const Bpe& bpe) {
  const std::vector<std::string> written = written_tokens(bpe);
  Json vocab = Json::object(), merges = Json::array();
  for (size_t id = 0; id < written.size(); ++id)
    if (!written[id].empty() && !vocab.add(written[id], id))
      throw DataError(text("token ", id, " and another are both written ", shown_on_a_line(written[id])));
  for (const auto& [left, right] : bpe.merges)
    merges.push_back(written[static_cast<size_t>(left)] + " " + written[static_cast<size_t>(right)]);
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", bpe.whole_words},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string tokenizer_json(const Bpe& bpe) {
  const Json root{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added_tokens_of(bpe)},
                  {"normalizer", bpe.compose ? Json{{"type", "NFC"}} : Json()},
                  {"pre_tokenizer", pre_tokenizer_of(bpe)},
                  {"post_processor", nullptr},
                  {"decoder", byte_level_stage(true)},
                  {"model", model_of(bpe)}};
  return root.dump({.indent = 1, .sorted = true, .strict = true}) + "\n";
}

}  // namespace trireme
