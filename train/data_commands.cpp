// trireme data build, import, info, verify.
#include <algorithm>
#include <optional>

#include "data/build.h"
#include "data/import.h"
#include "kernels/device.h"
#include "train/commands.h"
#include "train/log.h"

namespace trireme {
namespace {

// What a split or a shard holds, for people.
std::string contents(int64_t tokens, int64_t documents, int64_t text_bytes) {
  const double per_token = static_cast<double>(text_bytes) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return text(tokens, " tokens, ", documents, " documents, ", human_bytes(static_cast<double>(text_bytes)), " of text, ",
              fixed(per_token, 2), " bytes per token");
}

void say_split(const std::string& name, const SplitSummary& split) {
  if (split.shards.empty()) return;
  const std::string last = split.shards.size() > 1 ? " to " + split.shards.back() : "";
  say(name + ": " + contents(split.tokens, split.documents, split.text_bytes) + ": " + split.shards.front() + last);
}

}  // namespace

ExitCode run_data_build(const DataBuildOptions& options) {
  if (options.validation > 0 && !options.validation_inputs.empty())
    throw ConfigError("--validation and --validation-input: give one of them");
  KernelsConfig cpu{.device = DeviceChoice::cpu};
  cpu.threads = options.threads;
  open_device(cpu, 1);  // sets the number of threads
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const BuildOptions build{.inputs = options.inputs,
                           .validation_inputs = options.validation_inputs,
                           .validation_fraction = options.validation,
                           .output = options.output,
                           .documents = {.field = options.field, .skip_bad = options.skip_errors},
                           .tokens_per_shard = options.shard_tokens,
                           .replace = options.replace};
  std::optional<ProgressBar> bar;
  const BuildSummary made = build_shards(build, *tokenizer, [&](const BuildProgress& progress) {
    if (!bar) bar.emplace("tokens", progress.bytes_total, human_bytes);
    bar->update(progress.bytes_read);
  });
  if (bar) bar->finish();
  for (const std::string& problem : made.problems) complain(problem);
  if (made.skipped > 0) complain(std::to_string(made.skipped) + " documents were left out");
  say_split("train", made.train);
  say_split("validation", made.validation);
  return ExitCode::done;
}

ExitCode run_data_import(const DataImportOptions& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  ImportOptions wanted{.inputs = options.inputs,
                       .output = options.output,
                       .split = options.split,
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
  return ExitCode::done;
}

ExitCode run_data_info(const std::vector<std::string>& shards) {
  ShardInfo all{};
  const std::vector<ShardInfo> infos = describe_shards(shards);
  for (const ShardInfo& shard : infos) {
    say(shard.path + ": " + contents(shard.tokens, shard.documents, shard.facts.text_bytes) + ", " +
        human_bytes(static_cast<double>(shard.file_bytes)) + " on disk, vocabulary " + std::to_string(shard.facts.vocab) +
        ", tokenizer " + shard.facts.tokenizer);
    all.tokens += shard.tokens;
    all.documents += shard.documents;
    all.facts.text_bytes += shard.facts.text_bytes;
  }
  if (infos.size() > 1) say(std::to_string(infos.size()) + " shards: " + contents(all.tokens, all.documents, all.facts.text_bytes));
  return ExitCode::done;
}

ExitCode run_data_verify(const std::vector<std::string>& shards) {
  ExitCode code = ExitCode::done;
  for (const ShardVerdict& verdict : verify_shards(shards)) {
    if (verdict.problem.empty()) {
      say(verdict.path + ": whole");
    } else {
      complain(verdict.problem);
      code = ExitCode::data;
    }
  }
  return code;
}

}  // namespace trireme
