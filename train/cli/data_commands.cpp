// trireme data build, import.
#include <algorithm>
#include <optional>

#include "data/build/build.h"
#include "data/build/import.h"
#include "data/build/inspect.h"
#include "kernels/device.h"
#include "train/cli/commands.h"
#include "train/cli/data_contents.h"
#include "train/cli/output_path.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataBuildOptions {
  static constexpr auto name = "data build";
  static constexpr auto about = "Turns text files and JSONL into token shards";
  std::vector<std::string> inputs, validation_inputs;
  std::string output, tokenizer, field = "text", prompt_field, response_field, messages_field;
  std::string stdin_name = "stdin.jsonl", pack = "concatenate", on_error = "stop";
  double validation = 0;  // fraction of the documents of `inputs`
  int64_t shard_tokens = 1 << 26, threads = 0, context = 0;
  bool replace = false;

  void visit(Options& o) {
    o("input", inputs, kTextInputs).required();
    o("--output", output, "Directory of the shards").required();
    o("--tokenizer", tokenizer, kTokenizers).required();
    o("--field", field, "The text's field in a JSON line");
    o("--prompt-field", prompt_field, "Of a JSON line, instead of --field: what is read, but not learnt to be written")
        .needs("--response-field")
        .excludes("--field");
    o("--response-field", response_field, "What stands behind the prompt: it and the end behind it are learnt")
        .needs("--prompt-field");
    o("--messages-field", messages_field,
      "Of a JSON line, instead of --field: a list of {\"role\": system, user or assistant, \"content\"}, of which the assistant's "
      "content is learnt; lines <|role|> stand between them")
        .excludes("--field")
        .excludes("--prompt-field");
    o("--pack", pack,
      "How documents become samples: one behind the other (concatenate), or, for --context, so that none is cut that fits "
      "(best-fit)")
        .one_of({"concatenate", "best-fit"});
    o("--context", context, "Tokens of a sample: model.context of the runs to come", at_least(2));
    o("--stdin-name", stdin_name, "What the input '-' would be called as a file: stdin.txt, stdin.jsonl.zst");
    o("--validation", validation, "Fraction of the documents to hold out", between(0, 1));
    o("--validation-input", validation_inputs, "Files, directories or patterns to hold out whole");
    o("--shard-tokens", shard_tokens, "Tokens of a shard, held in memory while it is made", at_least(1));
    o("--threads", threads, "0: all cores", between(0, 4096));
    o("--replace", replace, "Replaces the shards that the output directory holds");
    o("--on-error", on_error, "What a document that cannot be read does: it is left out (skip) or ends the build (stop)")
        .one_of({"skip", "stop"});
  }
};

struct DataImportOptions {
  static constexpr auto name = "data import";
  static constexpr auto about = "Makes shards of tokens that llm.c, Megatron-LM or NumPy have written, token for token";
  std::vector<std::string> inputs;
  std::string output, tokenizer, format = "auto", split = "train";
  int64_t begin = -1, shard_tokens = 1 << 26;
  bool replace = false;

  void visit(Options& o) {
    o("input", inputs, "Files, directories or patterns: .bin of llm.c, .bin with .idx of Megatron-LM, .npy").required();
    o("--output", output, "Directory of the shards").required();
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", by which the tokens were made").required();
    o("--format", format, "What the files are").one_of({"auto", "llmc", "megatron", "npy"});
    o("--begin", begin, "The token that each document begins with; without: they end with the tokenizer's end",
      between(0, INT32_MAX));
    o("--split", split, "What the shards are for").one_of({"train", "validation"});
    o("--shard-tokens", shard_tokens, "Tokens of a shard, held in memory while it is made", at_least(1));
    o("--replace", replace, "Replaces the shards of this split that the output directory holds");
  }
};

void say_split(const std::string& name, const SplitSummary& split) {
  if (split.shards.empty()) return;
  const std::string last = split.shards.size() > 1 ? " to " + split.shards.back() : "";
  say(name + ": " + data_contents(split.tokens, split.documents, split.text_bytes) + ": " + split.shards.front() + last);
  if (split.trained_tokens < split.tokens)
    say(std::string(text(name, ": ", split.trained_tokens, " tokens are targets, ", percent(split.trained_tokens, split.tokens))));
  if (split.rows > 0)
    say(std::string(text(name, ": packed in ", split.rows, " rows, of which ", percent(split.filling, split.tokens),
                         " is filling; ", split.cut_documents, " documents are longer than a row and cut")));
}

// Of documents one behind the other.
void say_cut(const std::string& name, const SplitSummary& split, int64_t context) {
  if (split.shards.empty() || split.rows > 0 || context == 0) return;
  const int64_t cut = count_cut_documents(split.shards, context);
  say(std::string(text(name, ": samples of ", context, " tokens cut ", percent(cut, split.documents), " of the documents")));
}

ExitCode run_data_build(const DataBuildOptions& options) {
  if (options.validation > 0 && !options.validation_inputs.empty())
    throw ConfigError("--validation and --validation-input: give one of them");
  const bool packed = options.pack == "best-fit";
  if (packed && options.context == 0) throw ConfigError("--pack best-fit: needs --context, the model.context to pack for");
  KernelsConfig cpu{.device = DeviceChoice::cpu};
  cpu.threads = options.threads;
  open_device(cpu, 1);  // sets the number of threads
  const PreparedOutput output = prepare_output(options.output, OutputKind::directory);
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const BuildOptions build{.inputs = options.inputs,
                           .validation_inputs = options.validation_inputs,
                           .validation_fraction = options.validation,
                           .output = options.output,
                           .documents = {.field = options.field,
                                         .skip_bad = options.on_error == "skip",
                                         .stdin_name = options.stdin_name,
                                         .prompt = options.prompt_field,
                                         .response = options.response_field,
                                         .messages = options.messages_field},
                           .tokens_per_shard = options.shard_tokens,
                           .replace = options.replace,
                           .pack_context = packed ? options.context : 0};
  std::optional<ProgressBar> bar;
  const BuildSummary made = build_shards(
      build, *tokenizer,
      [&](const BuildProgress& progress) {
        if (!bar) bar.emplace("tokens", progress.bytes_total, human_bytes);
        bar->update(progress.bytes_read);
      },
      [] { say("going on with the build of the same shards that was cut off"); });
  if (bar) bar->finish();
  for (const std::string& problem : made.problems) complain(problem);
  if (made.skipped > 0) complain(std::to_string(made.skipped) + " documents were left out");
  for (const auto& [name, split] : {std::pair("train", &made.train), {"validation", &made.validation}}) {
    say_split(name, *split);
    say_cut(name, *split, options.context);
  }
  return ExitCode::done;
}

ExitCode run_data_import(const DataImportOptions& options) {
  const PreparedOutput output = prepare_output(options.output, OutputKind::directory);
  const auto tokenizer = open_tokenizer(options.tokenizer);
  ImportOptions wanted{.inputs = options.inputs,
                       .output = options.output,
                       .split = options.split,
                       .begin = static_cast<int32_t>(options.begin),
                       .tokens_per_shard = options.shard_tokens,
                       .replace = options.replace};
  for (const auto& [name, format] :
       {std::pair("llmc", TokenFormat::llmc), {"megatron", TokenFormat::megatron}, {"npy", TokenFormat::npy}})
    if (options.format == name) wanted.format = format;
  std::optional<ProgressBar> bar;
  const SplitSummary made = import_shards(wanted, *tokenizer, [&](const BuildProgress& progress) {
    if (!bar) bar.emplace("tokens", progress.bytes_total, human_bytes);
    bar->update(progress.bytes_read);
  });
  if (bar) bar->finish();
  say_split(options.split, made);
  if (made.tokens > 1000000 && made.documents < made.tokens / 1000000)
    complain(std::string(text("only ", made.documents, " documents: if they begin with a token, say --begin ID")));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> data_build_command() { return make_command<DataBuildOptions>(run_data_build); }
std::unique_ptr<Command> data_import_command() { return make_command<DataImportOptions>(run_data_import); }

}  // namespace trireme
