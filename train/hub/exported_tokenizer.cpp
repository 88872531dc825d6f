#include "train/hub/exported_tokenizer.h"

#include <filesystem>

#include "base/json.h"
#include "base/json_file.h"
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

// Takes post-processors that add tokens to a text out of `part`, and a sequence that is empty then. True if there were any.
bool remove_templates(Json& part) {
  if (part.value_or_null("type") == "TemplateProcessing") return part = nullptr, true;
  Json* const processors = part.find("processors");
  if (processors == nullptr || !processors->is_array()) return false;
  bool removed = false;
  for (Json& one : processors->items()) removed |= remove_templates(one);
  if (!removed) return false;
  std::erase_if(processors->items(), [](const Json& one) { return one.is_null(); });
  if (processors->empty()) part = nullptr;
  return true;
}

// `data build` writes no such token as Llama 3's <|begin_of_text|>. A model that was trained from scratch has never seen one, so
// its copy adds none. A published model keeps its own.
void copy_tokenizer_json(const RunConfig& config, const std::string& path, const std::string& to) {
  Json json = config.train.init_from.empty() ? read_json(path, kTokenizerJson, "a tokenizer.json") : Json();
  Json* const added = json.find("post_processor");
  if (added != nullptr && remove_templates(*added)) return write_export(to, json.dump({.indent = 2}) + "\n");
  copy_export(path, to);
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

std::string write_tokenizer(const RunConfig& config, const std::string& path, const std::string& output, SpecialTokens& tokens) {
  if (path == "none") return "no tokenizer was written, as --tokenizer none says";
  if (path.empty()) return "no tokenizer was written: the run's config has no data.tokenizer; add one by --tokenizer PATH";
  Bpe bpe;
  const TokenizerKind kind = parse_tokenizer_name(path).kind;
  if (kind == TokenizerKind::bytes) {
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, static_cast<char>(byte));
    bpe.tokens.emplace_back();
    bpe.end_of_document = 256;
    bpe.special.emplace_back(256, kEndOfText);
    save_tokenizer_json(bpe, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::tokenizer_json) {
    bpe = read_tokenizer_json(path);
    copy_tokenizer_json(config, path, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::vocabulary) {
    bpe = read_vocabulary(path);
    save_tokenizer_json(bpe, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::sentencepiece) {
    return write_sentencepiece(config, path, output, tokens);
  } else {
    tokens.begin = tokens.end = std::to_string(open_tokenizer(path)->end_of_document());
    return "no tokenizer was written: tiktoken ranks have no tokenizer.json";
  }
  tokens.begin = tokens.end = std::to_string(bpe.end_of_document);  // a document begins after the end of the one before
  for (const auto& [id, written] : bpe.special)
    if (id == bpe.end_of_document) write_tokenizer_config(config, "PreTrainedTokenizerFast", written, output);
  return "";
}

void keep_origin(const RunConfig& config, const std::string& tokenizer, const std::string& output, SpecialTokens& tokens) {
  const std::string& from = config.train.init_from;
  if (!tokenizer.ends_with(".json") && !tokenizer.ends_with(".model")) return;
  const std::string its = from + (tokenizer.ends_with(".model") ? "/tokenizer.model" : "/tokenizer.json");
  if (from.empty() || !fs::exists(from + "/config.json") || !fs::exists(its)) return;
  if (open_tokenizer(tokenizer)->fingerprint() != open_tokenizer(its)->fingerprint()) return;
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
