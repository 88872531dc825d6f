// trireme model export, config: to and from the formats in which models are published.
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "base/replace_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_sentencepiece.h"
#include "train/cli/commands.h"
#include "train/config/keys.h"
#include "train/hub/published_config.h"
#include "train/hub/published_weights.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct ModelExportOptions {
  static constexpr auto name = "model export";
  static constexpr auto about = "Writes a checkpoint as config.json, safetensors and tokenizer files, for transformers and vLLM";
  std::string from, output, dtype, file_size = "5GB", tokenizer;
  bool replace = false;

  void visit(Options& o) {
    o("from", from, "A run's directory, or one checkpoint's").required();
    o("output", output, "A directory; made if need be").required();
    o("--dtype", dtype, "Of the weights; without: kernels.dtype of the run").one_of({"f32", "bf16"});
    o("--file-size", file_size, "Of a file, at most, where there are several");
    o("--tokenizer", tokenizer, "Instead of the run's data.tokenizer; none: without one");
    o("--replace", replace, "Replace the model that the output directory holds");
  }
};

struct ModelConfigOptions {
  static constexpr auto name = "model config";
  static constexpr auto about = "Prints a config that trains on from a published model";
  std::string directory;
  void visit(Options& o) { o("directory", directory, "That holds its config.json").required(); }
};

// A published tensor and our weights that it is made of.
struct Export {
  SafetensorsWriter::Entry entry;
  std::vector<WholeWeight> parts;
};

std::vector<Export> exports_of(const ModelConfig& model) {
  std::vector<Export> all;
  for (const WholeWeight& weight : published_weights(model)) {
    if (all.empty() || all.back().entry.name != weight.place.name)
      all.push_back({.entry = {.name = weight.place.name, .shape = published_shape(weight)}, .parts = {}});
    all.back().parts.push_back(weight);
  }
  return all;
}

// Into files of at most `most` bytes of data, at least one tensor each.
std::vector<std::vector<Export>> cut(std::vector<Export> all, FloatType type, int64_t most) {
  std::vector<std::vector<Export>> files(1);
  int64_t bytes = 0;
  for (Export& one : all) {
    const int64_t more = bytes_of({one.entry}, type);
    if (!files.back().empty() && bytes + more > most) files.emplace_back(), bytes = 0;
    files.back().push_back(std::move(one));
    bytes += more;
  }
  return files;
}

std::vector<float> values_of(const CheckpointReader& checkpoint, const Export& one) {
  int64_t size = 1;
  for (const int64_t dim : one.entry.shape) size *= dim;
  std::vector<float> values(static_cast<size_t>(size)), ours;
  for (const WholeWeight& weight : one.parts) {
    const int64_t rows = weight.shape[0], cols = weight.shape.size() == 1 ? 1 : weight.shape[1];
    const bool in_place = !weight.place.transposed;
    ours.resize(in_place ? 0 : static_cast<size_t>(rows * cols));
    float* const to = in_place ? values.data() + weight.place.first * cols : ours.data();
    checkpoint.read(weight.name, weight.shape.size() == 1 ? Tensor(to, Dtype::f32, Place::cpu, {rows})
                                                          : Tensor(to, Dtype::f32, Place::cpu, {rows, cols}));
    if (in_place) continue;
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r)
        values[static_cast<size_t>(c * weight.place.all + weight.place.first + r)] = to[r * cols + c];
  }
  return values;
}

std::string file_name(size_t number, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

constexpr const char *kIndex = "model.safetensors.index.json", *kConfig = "config.json";

void write_file(const std::string& path, const std::string& text) {
  if (!replace_file_durably(path, text)) throw DataError(path + ": cannot be written: " + strerror(errno));
}

void copy_file(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) throw DataError(from + ": cannot be read");
  write_file(to, bytes.str());
}

// Returns the bytes written.
int64_t write_weights(const CheckpointReader& checkpoint, const std::vector<std::vector<Export>>& files, FloatType type,
                      const std::string& output) {
  Json index;
  int64_t tensors = 0, done = 0, total = 0;
  for (const auto& file : files) tensors += std::ssize(file);
  ProgressBar bar("writing", tensors);
  for (size_t i = 0; i < files.size(); ++i) {
    std::vector<SafetensorsWriter::Entry> entries;
    for (const Export& one : files[i]) entries.push_back(one.entry);
    const std::string name = file_name(i, files.size());
    SafetensorsWriter writer(output + "/" + name, entries, type);
    for (const Export& one : files[i]) {
      const std::vector<float> values = values_of(checkpoint, one);
      writer.append(values.data(), std::ssize(values));
      total += std::ssize(values) * (type == FloatType::f32 ? 4 : 2);
      index["weight_map"][one.entry.name] = name;
      bar.update(++done);
    }
    writer.commit();
  }
  bar.finish();
  index["metadata"]["total_size"] = total;
  if (files.size() > 1) write_file(output + "/" + kIndex, index.dump({.indent = 2}) + "\n");
  return total;
}

// Where an export is written: inside its directory, from where its files take their places when all of them are on disk,
// config.json last. What is cut off before leaves an older model as it was; after, no config.json, and so no model: never parts of
// two.
class Output {
 public:
  // ConfigError when the directory holds files of those names and they are not to be replaced.
  Output(const std::string& directory, bool replace) : directory_(directory) {
    std::error_code problem;
    fs::create_directories(directory, problem);
    if (!fs::is_directory(directory)) throw ConfigError(directory + ": cannot be made as a directory: " + problem.message());
    for (const std::string& name : exported())
      if (!replace)
        throw ConfigError(directory + "/" + name + ": the output holds a model already: choose another directory, or --replace it");
    fs::remove_all(partial(), problem);
    if (!fs::create_directory(partial(), problem)) throw ConfigError(directory + ": cannot be written into: " + problem.message());
  }
  ~Output() {
    std::error_code ignored;
    fs::remove_all(partial(), ignored);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  std::string partial() const { return directory_ + "/.partial"; }
  void commit() const {
    fs::remove(directory_ + "/" + kConfig);
    sync_directory(directory_);
    for (const std::string& name : exported()) fs::remove(directory_ + "/" + name);
    for (const auto& entry : fs::directory_iterator(partial()))
      if (entry.path().filename() != kConfig) fs::rename(entry.path(), directory_ + "/" + entry.path().filename().string());
    sync_directory(directory_);
    commit_file(partial() + "/" + kConfig, directory_ + "/" + kConfig);
  }

 private:
  // The names of what exports have written here, or is called so.
  std::vector<std::string> exported() const {
    constexpr std::array kNames{kConfig,
                                "generation_config.json",
                                "tokenizer.json",
                                "tokenizer.model",
                                "tokenizer_config.json",
                                "chat_template.jinja",
                                "special_tokens_map.json",
                                kIndex};
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (std::ranges::find(kNames, name) != kNames.end() || (name.starts_with("model") && name.ends_with(".safetensors")))
        names.push_back(name);
    }
    return names;
  }

  const std::string directory_;
};

void write_tokenizer_config(const RunConfig& config, const std::string& kind, const std::string& end, const std::string& output) {
  Json said;
  said["tokenizer_class"] = kind;
  said["bos_token"] = said["eos_token"] = end;
  if (kind == "LlamaTokenizer") said["add_bos_token"] = said["add_eos_token"] = false;
  said["model_max_length"] = config.model.context;
  said["clean_up_tokenization_spaces"] = false;
  write_file(output + "/tokenizer_config.json", said.dump({.indent = 2}) + "\n");
}

// SentencePiece's; what transformers cannot do with it, or "".
std::string write_sentencepiece(const RunConfig& config, const std::string& path, const std::string& output,
                                SpecialTokens& tokens) {
  const SentencePieceModel model = read_sentencepiece_model(path);
  tokens.begin = tokens.end = std::to_string(make_sentencepiece_tokenizer(model, path)->end_of_document());
  copy_file(path, output + "/tokenizer.model");
  if (model.unigram) return "tokenizer.model is of unigram pieces, for which transformers has no tokenizer of these models";
  write_tokenizer_config(config, "LlamaTokenizer", model.end_piece, output);
  return "";
}

// The tokenizer's own files; what the export has not of them, or "".
std::string write_tokenizer(const RunConfig& config, const std::string& path, const std::string& output, SpecialTokens& tokens) {
  if (path.empty() || path == "none") return "no tokenizer was written: the run's config names no data.tokenizer";
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
    copy_file(path, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::vocabulary) {
    bpe = read_vocabulary(path);
    save_tokenizer_json(bpe, output + "/tokenizer.json");
  } else if (kind == TokenizerKind::sentencepiece) {
    return write_sentencepiece(config, path, output, tokens);
  } else {
    tokens.begin = tokens.end = std::to_string(open_tokenizer(path)->end_of_document());
    return "no tokenizer was written: ranks of tiktoken have no tokenizer.json";
  }
  tokens.begin = tokens.end = std::to_string(bpe.end_of_document);  // a document begins after the end of another
  for (const auto& [id, written] : bpe.special)
    if (id == bpe.end_of_document) write_tokenizer_config(config, "PreTrainedTokenizerFast", written, output);
  return "";
}

// How to load the files where transformers' AutoTokenizer (5.23) makes another tokenizer of them, or "".
std::string otherwise_read(const std::string& model_type, const std::string& output) {
  if (model_type == "mistral" && fs::exists(output + "/tokenizer.model"))
    return "transformers' AutoTokenizer reads tokenizer.model of a Mistral model without the space in front of a text; load it by "
           "LlamaTokenizer";
  if (model_type != "qwen2" || !fs::exists(output + "/tokenizer.json")) return "";
  const Bpe bpe = read_tokenizer_json(output + "/tokenizer.json");
  if (bpe.compose && bpe.patterns == std::vector{patterns::qwen2}) return "";
  return "transformers' AutoTokenizer reads tokenizer.json of a Qwen2 model with Qwen's words and normal form C, which this one "
         "does not "
         "have; load it by PreTrainedTokenizerFast";
}

// Of a run that began with a published model and its tokenizer: that one's special tokens, and how it generates and talks, if it is
// still there.
void keep_origin(const RunConfig& config, const std::string& tokenizer, const std::string& output, SpecialTokens& tokens) {
  const std::string& from = config.train.init_from;
  if (!tokenizer.ends_with(".json") && !tokenizer.ends_with(".model")) return;
  const std::string its = from + (tokenizer.ends_with(".model") ? "/tokenizer.model" : "/tokenizer.json");
  if (from.empty() || !fs::exists(from + "/config.json") || !fs::exists(its)) return;
  if (open_tokenizer(tokenizer)->fingerprint() != open_tokenizer(its)->fingerprint()) return;
  tokens = read_special_tokens(from + "/config.json");
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"})
    if (fs::exists(from + "/" + name)) copy_file(from + "/" + name, output + "/" + name);
}

ExitCode run_model_export(const ModelExportOptions& options) {
  const CheckpointReader checkpoint(options.from);
  const RunConfig config = parse_config(checkpoint.directory(), checkpoint.manifest().config);
  const bool bf16 = options.dtype == "bf16" || (options.dtype.empty() && config.kernels.dtype == StepDtype::bf16);
  const FloatType type = bf16 ? FloatType::bf16 : FloatType::f32;
  const std::optional<int64_t> most = parse_bytes(options.file_size);
  if (!most) throw ConfigError("--file-size " + options.file_size + ": must be a size such as 5GB");
  const std::vector<std::vector<Export>> files = cut(exports_of(config.model), type, *most);
  const Output output(options.output, options.replace);
  std::string tokenizer = options.tokenizer.empty() ? config.data.tokenizer : options.tokenizer;
  if (tokenizer.empty()) tokenizer = published_tokenizer(config.train.init_from);
  SpecialTokens tokens;
  std::string without;
  try {
    without = write_tokenizer(config, tokenizer, output.partial(), tokens);
  } catch (const DataError& e) {
    throw DataError(text(e.what(), "; name the tokenizer by --tokenizer, or export without one by --tokenizer none"));
  }
  write_file(output.partial() + "/generation_config.json", published_generation_config(tokens));
  keep_origin(config, tokenizer, output.partial(), tokens);
  const int64_t bytes = write_weights(checkpoint, files, type, output.partial());
  const std::string described = published_config(config.model, tokens, bf16 ? "bfloat16" : "float32",
                                                 config.train.init_from.empty() ? "" : config.train.init_from + "/config.json");
  write_file(output.partial() + "/config.json", described);
  if (without.empty()) without = otherwise_read(Json::parse(described).at("model_type"), output.partial());
  output.commit();
  if (!without.empty()) complain(without);
  say(std::string(text(options.output, ": step ", checkpoint.manifest().step, ", ", human_bytes(static_cast<double>(bytes)), " of ",
                       bf16 ? "bf16" : "f32", " weights in ", files.size(), files.size() == 1 ? " file" : " files")));
  return ExitCode::done;
}

ExitCode run_model_config(const ModelConfigOptions& options) {
  const std::string& directory = options.directory;
  RunConfig config;
  config.model = read_published_config(directory + "/config.json");
  say("model:");
  for (const Key& key : list_keys(config))
    if (key.section == "model") say("  " + key.name + ": " + key.value);
  const std::string tokenizer = published_tokenizer(directory);
  say("data:\n  train: [corpus/train-*.h5]  # by `trireme data build TEXTS --output corpus --tokenizer " +
      (tokenizer.empty() ? "TOKENIZER" : tokenizer) + "`");
  if (!tokenizer.empty()) say("  tokenizer: " + tokenizer);
  say("train:\n  init_from: " + directory);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> model_export_command() { return make_command<ModelExportOptions>(run_model_export); }
std::unique_ptr<Command> model_config_command() { return make_command<ModelConfigOptions>(run_model_config); }

}  // namespace trireme
