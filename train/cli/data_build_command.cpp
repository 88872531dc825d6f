// trireme data build.
#include <optional>

#include "data/build/build.h"
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
  static constexpr auto about = "Convert text files and JSON lines to token shards";
  std::vector<std::string> inputs, validation_inputs;
  std::string output, tokenizer, field = "text", prompt_field, input_field, response_field, messages_field, chat_template;
  std::string stdin_name = "stdin.jsonl", pack = "concatenate", on_error = "stop";
  double validation = 0;  // fraction of the documents of `inputs`
  int64_t shard_tokens = 1 << 26, threads = 0, context = 0;
  bool replace = false;

  void visit(Options& o) {
    o("input", inputs, kTextInputs).required();
    o("--output", output, "Directory of the shards").required();
    o("--tokenizer", tokenizer, kTokenizers).required();
    o("--field", field, "Field of a JSON line that holds the text");
    o("--prompt-field", prompt_field, "Field of a JSON line, instead of --field: the prompt, which is not trained on")
        .needs("--response-field")
        .excludes("--field");
    o("--input-field", input_field, "Field of a JSON line: input that belongs to the prompt, as in Alpaca's data")
        .needs("--prompt-field");
    o("--response-field", response_field, "Field of a JSON line: the response to the prompt; it and its end are trained on")
        .needs("--prompt-field");
    o("--messages-field", messages_field,
      "Field of a JSON line, instead of --field: a list of messages, {\"role\", \"content\"} or ShareGPT's {\"from\", "
      "\"value\"}; the assistant's are trained on")
        .excludes("--field")
        .excludes("--prompt-field");
    o("--chat-template", chat_template,
      "Form in which messages, or prompts and responses, are written; without it: trireme for messages, alpaca with "
      "--input-field, none for prompts alone")
        .one_of({ChatTemplate::kNames.begin(), ChatTemplate::kNames.end()});
    o("--pack", pack,
      "Order of documents in samples: one after the other (concatenate), or in rows of --context tokens so that none that fits "
      "is cut (best-fit)")
        .one_of({"concatenate", "best-fit"});
    o("--context", context, "Tokens of a sample, as model.context of the runs to come", at_least(2));
    o("--stdin-name", stdin_name, "Name of the input '-' as if it were a file, which gives its format: stdin.txt, stdin.jsonl.zst");
    o("--validation", validation, "Fraction of the documents to hold out for validation, at least one; 0: none", between(0, 1));
    o("--validation-input", validation_inputs, "Files, directories or patterns to hold out whole for validation");
    o("--shard-tokens", shard_tokens, "Tokens in a shard, which is held in memory while it is made", at_least(1));
    o("--threads", threads, "Threads to use; 0: all cores", between(0, 4096));
    o("--replace", replace, "Replace the shards in the output directory");
    o("--on-error", on_error, "Action for a document that cannot be read: leave it out (skip) or end the build (stop)")
        .one_of({"skip", "stop"});
  }
};

// Prints how many documents samples cut, if documents follow one another.
void say_cut(const std::string& name, const SplitSummary& split, int64_t context) {
  if (split.shards.empty() || split.rows > 0 || context == 0) return;
  const int64_t cut = count_cut_documents(split.shards, context);
  say(std::string(text(name, ": samples of ", context, " tokens cut ", percent(cut, split.documents), " of the documents")));
}

ExitCode run_data_build(const DataBuildOptions& options) {
  if (options.validation > 0 && !options.validation_inputs.empty())
    throw ConfigError("--validation and --validation-input: give one of them");
  if (!options.chat_template.empty() && options.messages_field.empty() && options.prompt_field.empty())
    throw ConfigError("--chat-template: needs --messages-field, or --prompt-field with --response-field");
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
                                         .input = options.input_field,
                                         .response = options.response_field,
                                         .messages = options.messages_field,
                                         .chat_template = options.chat_template},
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
      [] { say("continuing the interrupted build of the same shards"); }, [](const std::string& message) { complain(message); });
  if (bar) bar->finish();
  for (const std::string& problem : made.problems) complain(problem);
  if (made.skipped > 0) complain(std::to_string(made.skipped) + " documents were left out");
  for (const auto& [name, split] : {std::pair("train", &made.train), {"validation", &made.validation}}) {
    say_split(name, *split);
    say_cut(name, *split, options.context);
  }
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> data_build_command() { return make_command<DataBuildOptions>(run_data_build); }

}  // namespace trireme
