// trireme data import: token files of other programs as shards.
#include <optional>

#include "data/build/import.h"
#include "train/cli/commands.h"
#include "train/cli/data_contents.h"
#include "train/cli/output_path.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataImportOptions {
  static constexpr auto name = "data import";
  static constexpr auto about = "Convert token files of llm.c, Megatron-LM, NumPy or nanoGPT to shards, token for token";
  std::vector<std::string> inputs;
  std::string output, tokenizer, format = "auto", split = "train";
  int64_t begin = -1, end = -1, shard_tokens = 1 << 26;
  bool replace = false;

  void visit(Options& o) {
    o("input", inputs,
      "Files, directories or patterns: .bin of llm.c or nanoGPT, Megatron-LM's .bin with .idx or their prefix, .npy")
        .required();
    o("--output", output, "Directory of the shards").required();
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", that made the tokens").required();
    o("--format", format, "Format of the files; raw16 and raw32: tokens without a header, as nanoGPT writes them")
        .one_of({"auto", "llmc", "megatron", "npy", "raw16", "raw32"});
    o("--begin", begin, "Token that each document begins with; default: none, documents end with --end", between(0, INT32_MAX));
    o("--end", end, "Token that each document ends with; default: the tokenizer's end of document", between(0, INT32_MAX));
    o("--split", split, "Use of the shards").one_of({"train", "validation"});
    o("--shard-tokens", shard_tokens, "Tokens in a shard, which is held in memory while it is made", at_least(1));
    o("--replace", replace, "Replace the shards of this split in the output directory");
  }
};

ExitCode run_data_import(const DataImportOptions& options) {
  const PreparedOutput output = prepare_output(options.output, OutputKind::directory);
  const auto tokenizer = open_tokenizer(options.tokenizer);
  ImportOptions wanted{.inputs = options.inputs,
                       .output = options.output,
                       .split = options.split,
                       .begin = static_cast<int32_t>(options.begin),
                       .end = static_cast<int32_t>(options.end),
                       .tokens_per_shard = options.shard_tokens,
                       .replace = options.replace};
  for (const auto& [name, format] : {std::pair("llmc", TokenFormat::llmc),
                                     {"megatron", TokenFormat::megatron},
                                     {"npy", TokenFormat::npy},
                                     {"raw16", TokenFormat::raw16},
                                     {"raw32", TokenFormat::raw32}})
    if (options.format == name) wanted.format = format;
  std::optional<ProgressBar> bar;
  const SplitSummary made = import_shards(
      wanted, *tokenizer,
      [&](const BuildProgress& progress) {
        if (!bar) bar.emplace("tokens", progress.bytes_total, human_bytes);
        bar->update(progress.bytes_read);
      },
      [](const std::string& message) { complain(message); });
  if (bar) bar->finish();
  say_split(options.split, made);
  if (made.tokens > 1000000 && made.documents < made.tokens / 1000000)
    complain(
        std::string(text("only ", made.documents,
                         " documents were found: name the token that they end with by --end ID, or begin with by --begin ID")));
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> data_import_command() { return make_command<DataImportOptions>(run_data_import); }

}  // namespace trireme
