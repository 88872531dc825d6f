// trireme model export: writes a checkpoint in the formats of published models.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/config/keys.h"
#include "train/hub/export_directory.h"
#include "train/hub/exported_chat_template.h"
#include "train/hub/exported_tokenizer.h"
#include "train/hub/published_weights.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct ModelExportOptions {
  static constexpr auto name = "model export";
  static constexpr auto about = "Write a checkpoint as config.json, safetensors and tokenizer files, for transformers and vLLM";
  std::string from, output, dtype, file_size = "5GB", tokenizer, chat_template, json;
  bool replace = false;

  void visit(Options& o) {
    o("from", from, "Directory of a run or of a checkpoint").required();
    o("output", output, "Directory to write; created if missing").required();
    o("--dtype", dtype, "Type of the weights; default: kernels.dtype of the run").one_of({"f32", "bf16"});
    o("--file-size", file_size, "Largest size of one safetensors file");
    o("--tokenizer", tokenizer, "Tokenizer to export; none: without one; default: data.tokenizer of the run");
    o("--chat-template", chat_template,
      "Chat template to export: trireme, chatml, llama3 or alpaca, a Jinja file, or none; default: the template of the training "
      "data");
    o("--replace", replace, "Replace the model in the output directory; default: refuse");
    o.json(json);
  }
};

// A published tensor and the weights that it consists of.
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

// Splits tensors into files of at most `most` bytes of data, at least one tensor each.
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

// Writes all files and the index; returns the bytes written.
int64_t write_weights(const CheckpointReader& checkpoint, const std::vector<std::vector<Export>>& files, FloatType type,
                      const std::string& output) {
  Json index;
  int64_t tensors = 0, done = 0, total = 0;
  for (const auto& file : files) tensors += std::ssize(file);
  ProgressBar bar("writing", tensors, human_count, "tensors");
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
  if (files.size() > 1) write_export(output + "/" + kExportIndex, index.dump({.indent = 2}) + "\n");
  return total;
}

// The files of a tokenizer with its chat template, and what else the model's configs say.
struct WrittenTexts {
  SpecialTokens tokens{};
  std::vector<std::string> warnings{};
};

WrittenTexts write_texts(const ModelExportOptions& options, const RunConfig& config, const std::string& output) {
  std::string tokenizer = options.tokenizer.empty() ? config.data.tokenizer : options.tokenizer;
  if (tokenizer.empty()) tokenizer = published_tokenizer(config.train.init_from);
  SpecialTokens tokens;
  TokenizerWarnings of_tokenizer;
  try {
    of_tokenizer = write_tokenizer(config, tokenizer, output, tokens);
  } catch (const DataError& e) {
    throw DataError(text(e.what(), "; name the tokenizer by --tokenizer, or export without one by --tokenizer none"));
  }
  const ChosenChatTemplate chat = choose_chat_template(options.chat_template, config.data.train, tokenizer);
  keep_origin(config, tokenizer, output, tokens);
  const std::string generation = output + "/generation_config.json";
  if (!std::filesystem::exists(generation)) write_export(generation, published_generation_config(tokens));
  add_end_of_turn(chat, output, tokens);
  std::string& without = of_tokenizer.missing;
  if (without.empty()) without = write_chat_template(chat, output);
  return {.tokens = tokens, .warnings = {of_tokenizer.doubt, chat.warning, without}};
}

ExitCode run_model_export(const ModelExportOptions& options) {
  JsonOutput json(options.json);
  const CheckpointReader checkpoint(options.from);
  const RunConfig config = parse_saved_config(checkpoint.directory(), checkpoint.manifest().config);
  const bool bf16 = options.dtype == "bf16" || (options.dtype.empty() && config.kernels.dtype == StepDtype::bf16);
  const FloatType type = bf16 ? FloatType::bf16 : FloatType::f32;
  const std::optional<int64_t> most = parse_bytes(options.file_size);
  if (!most) throw ConfigError("--file-size " + options.file_size + ": must be a size such as 5GB");
  const std::vector<std::vector<Export>> files = cut(exports_of(config.model), type, *most);
  const ExportDirectory output(options.output, options.replace);
  auto [tokens, warnings] = write_texts(options, config, output.partial());
  const int64_t bytes = write_weights(checkpoint, files, type, output.partial());
  const std::string described = published_config(config.model, tokens, bf16 ? "bfloat16" : "float32",
                                                 config.train.init_from.empty() ? "" : config.train.init_from + "/config.json");
  write_export(output.partial() + "/config.json", described);
  if (warnings.back().empty()) warnings.back() = otherwise_read(Json::parse(described).at("model_type"), output.partial());
  std::erase(warnings, "");
  output.commit();
  std::string warning;
  for (const std::string& one : warnings) complain(one), warning += (warning.empty() ? "" : "; ") + one;
  say(std::string(text(options.output, ": step ", checkpoint.manifest().step, ", ", human_bytes(static_cast<double>(bytes)), " of ",
                       bf16 ? "bf16" : "f32", " weights in ", files.size(), files.size() == 1 ? " file" : " files")));
  json.write({{"output", options.output},
              {"step", checkpoint.manifest().step},
              {"bytes", bytes},
              {"dtype", bf16 ? "bf16" : "f32"},
              {"files", files.size()},
              {"warning", warning.empty() ? Json() : Json(warning)}});
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> model_export_command() { return make_command<ModelExportOptions>(run_model_export); }

}  // namespace trireme
