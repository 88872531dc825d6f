#include "train/hub/exported_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/json_file.h"
#include "data/documents/list_files.h"
#include "data/shard/shard.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_sentencepiece.h"
#include "train/hub/export_directory.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

void write_tokenizer_config(const RunConfig& config, const std::string& kind, const std::string& end, const std::string& output) {
  Json said;
  said["tokenizer_class"] = kind;
  said["bos_token"] = said["eos_token"] = end;
  if (kind == "LlamaTokenizer") said["add_bos_token"] = said["add_eos_token"] = false;
  said["model_max_length"] = config.model.context;
  said["clean_up_tokenization_spaces"] = false;
  write_export(output + "/tokenizer_config.json", said.dump({.indent = 2}) + "\n");
}

// Takes post-processors that add tokens to a text out of `part`, unless `stays`, and a sequence that is empty then. True if any
// were taken.
bool remove_templates(Json& part, const std::function<bool(const Json&)>& stays) {
  if (part.value_or_null("type") == "TemplateProcessing") {
    if (stays(part)) return false;
    part = nullptr;
    return true;
  }
  Json* const processors = part.find("processors");
  if (processors == nullptr || !processors->is_array()) return false;
  bool removed = false;
  for (Json& one : processors->items()) removed |= remove_templates(one, stays);
  if (!removed) return false;
  std::erase_if(processors->items(), [](const Json& one) { return one.is_null(); });
  if (processors->empty()) part = nullptr;
  return true;
}

// The special token that a template puts in front of a text; nullptr: there is none, or others follow the text.
const std::pair<int32_t, std::string>* begin_token_of(const Json& processor, const Bpe& bpe) {
  const Json& parts = processor.value_or_null("single");
  if (!parts.is_array()) return nullptr;
  std::string begin;
  bool after_text = false;
  for (const Json& part : parts) {
    const Json& id = part.value_or_null("SpecialToken").value_or_null("id");
    if (after_text && !id.is_null()) return nullptr;
    if (begin.empty() && id.is_string()) begin = id.string();
    after_text |= part.contains("Sequence");
  }
  if (begin.empty()) return nullptr;
  const auto found = std::ranges::find(bpe.special, begin, &std::pair<int32_t, std::string>::second);
  return found == bpe.special.end() ? nullptr : &*found;
}

// True if most documents of the training data begin with a token, by some of all. DataError if they cannot be read, or have ids of
// another tokenizer.
bool begin_mostly_with(int32_t token, const std::string& tokenizer, const std::vector<std::string>& data) {
  constexpr int64_t kMost = 16;  // shards, and documents of each
  const std::vector<std::string> files = list_files(data, ".h5");
  const int64_t all = std::ssize(files), some = std::min(all, kMost);
  int64_t documents = 0, with_token = 0;
  for (int64_t i = 0; i < some; ++i) {
    const ShardReader shard(files[static_cast<size_t>(i * all / some)]);
    if (const std::string& its = shard.facts().tokenizer; its != tokenizer)
      throw DataError(text(shard.path(), ": was made with tokenizer ", its, ", not with ", tokenizer));
    const int64_t looked_at = std::min(shard.documents(), kMost);
    for (int64_t d = 0; d < looked_at; ++d) {
      int32_t first = -1;
      shard.read(shard.document(d * shard.documents() / looked_at).begin, std::span(&first, 1));
      with_token += first == token ? 1 : 0;
    }
    documents += looked_at;
  }
  if (documents == 0) throw DataError("data.train: names no documents");
  return 2 * with_token > documents;
}

// The tokenizer of the published model that the run began with, if it is still there and the same as `tokenizer`; otherwise "".
std::string tokenizer_of_origin(const RunConfig& config, const std::string& tokenizer) try {
  const std::string& from = config.train.init_from;
  if (from.empty() || (!tokenizer.ends_with(".json") && !tokenizer.ends_with(".model"))) return "";
  const std::string its = from + (tokenizer.ends_with(".model") ? "/tokenizer.model" : "/tokenizer.json");
  if (!fs::exists(its)) return "";
  return open_tokenizer(tokenizer)->fingerprint() == open_tokenizer(its)->fingerprint() ? its : "";
} catch (const DataError&) {
  return "";
}

// Llama 3's file puts <|begin_of_text|> in front of a text. A model that was trained from scratch has seen it there only if its
// data has it, which `data build` does not write. Other models keep what the one that they began with does. Returns a warning if
// the data is not known, or "".
std::string copy_tokenizer_json(const RunConfig& config, const Bpe& bpe, const std::string& path, const std::string& to) {
  Json json = read_json(path, kTokenizerJson, "a tokenizer.json");
  Json* const added = json.find("post_processor");
  std::string doubt;
  bool changed = false;
  if (const std::string its = tokenizer_of_origin(config, path); !its.empty()) {
    const Json origin = read_json(its, kTokenizerJson, "a tokenizer.json");
    changed = !(json.value_or_null("post_processor") == origin.value_or_null("post_processor"));
    if (changed) json["post_processor"] = origin.value_or_null("post_processor");
  } else if (added != nullptr && config.train.init_from.empty()) {
    changed = remove_templates(*added, [&](const Json& one) {
      const auto* const begin = begin_token_of(one, bpe);
      try {
        return begin != nullptr && begin_mostly_with(begin->first, open_tokenizer(path)->fingerprint(), config.data.train);
      } catch (const DataError& problem) {
        doubt = text("the exported tokenizer.json puts no ", begin->second,
                     " in front of a text; whether the training data does is not known: ", problem.what());
        return false;
      }
    });
  }
  if (changed)
    write_export(to, json.dump({.indent = 2}) + "\n");
  else
    copy_export(path, to);
  return doubt;
}

// Copies a SentencePiece model. Returns a warning if transformers cannot use it, or "".
std::string write_sentencepiece(const RunConfig& config, const std::string& path, const std::string& output,
                                SpecialTokens& tokens) {
  const SentencePieceModel model = read_sentencepiece_model(path);
  tokens.begin = tokens.end = std::to_string(make_sentencepiece_tokenizer(model, path)->end_of_document());
  copy_export(path, output + "/tokenizer.model");
  if (model.unigram) return "tokenizer.model has unigram pieces; transformers has no tokenizer for these models with them";
  write_tokenizer_config(config, "LlamaTokenizer", model.end_piece, output);
  return "";
}

}  // namespace

TokenizerWarnings write_tokenizer(const RunConfig& config, const std::string& path, const std::string& output,
                                  SpecialTokens& tokens) {
  if (path == "none") return {.missing = "no tokenizer was written, as --tokenizer none says"};
  if (path.empty())
    return {.missing = "no tokenizer was written: the run's config has no data.tokenizer; add one by --tokenizer PATH"};
  Bpe bpe;
  TokenizerWarnings warnings;
  const TokenizerKind kind = parse_tokenizer_name(path).kind;
  if (kind == TokenizerKind::bytes) {
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, static_cast<char>(byte));
    bpe.tokens.emplace_back();
    bpe.end_of_document = 256;
    bpe.special.emplace_back(256, kEndOfText);
    save_tokenizer_json(bpe, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::tokenizer_json) {
    bpe = read_tokenizer_json(path);
    warnings.doubt = copy_tokenizer_json(config, bpe, path, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::vocabulary) {
    bpe = read_vocabulary(path);
    save_tokenizer_json(bpe, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::sentencepiece) {
    return {.missing = write_sentencepiece(config, path, output, tokens)};
  } else {
    tokens.begin = tokens.end = std::to_string(open_tokenizer(path)->end_of_document());
    return {.missing = "no tokenizer was written: tiktoken ranks have no tokenizer.json"};
  }
  tokens.begin = tokens.end = std::to_string(bpe.end_of_document);  // a document begins after the end of the one before
  for (const auto& [id, written] : bpe.special)
    if (id == bpe.end_of_document) write_tokenizer_config(config, "PreTrainedTokenizerFast", written, output);
  return warnings;
}

void keep_origin(const RunConfig& config, const std::string& tokenizer, const std::string& output, SpecialTokens& tokens) {
  const std::string& from = config.train.init_from;
  if (from.empty() || !fs::exists(from + "/config.json") || tokenizer_of_origin(config, tokenizer).empty()) return;
  tokens = read_special_tokens(from + "/config.json");
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"})
    if (fs::exists(from + "/" + name)) copy_export(from + "/" + name, output + "/" + name);
}

std::string otherwise_read(const std::string& model_type, const std::string& output) {
  if (model_type == "mistral" && fs::exists(output + "/tokenizer.model"))
    return "transformers' AutoTokenizer reads tokenizer.model of a Mistral model without the space before a text; load it with "
           "LlamaTokenizer";
  if (model_type != "qwen2" || !fs::exists(output + "/tokenizer.json")) return "";
  const Bpe bpe = read_tokenizer_json(output + "/tokenizer.json");
  if (bpe.compose && bpe.patterns == std::vector{patterns::qwen2}) return "";
  return "transformers' AutoTokenizer reads tokenizer.json of a Qwen2 model with Qwen's pattern and normal form C, which this "
         "tokenizer lacks; load it with PreTrainedTokenizerFast";
}

}  // namespace trireme
