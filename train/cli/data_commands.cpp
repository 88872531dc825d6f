// trireme data build, import, info, verify.
#include <algorithm>
#include <optional>

#include "checkpoint/digest.h"
#include "data/build/build.h"
#include "data/build/import.h"
#include "data/build/inspect.h"
#include "data/shard/exclusion.h"
#include "kernels/device.h"
#include "train/cli/commands.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

// What a split or a shard holds, for people.
std::string contents(int64_t tokens, int64_t documents, int64_t text_bytes) {
  const double per_token = static_cast<double>(text_bytes) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return text(tokens, " tokens, ", documents, " documents, ", human_bytes(static_cast<double>(text_bytes)), " of text, ",
              fixed(per_token, 2), " bytes per token");
}

std::string percent(int64_t part, int64_t whole) {
  return fixed(100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)), 2) + " %";
}

void say_split(const std::string& name, const SplitSummary& split) {
  if (split.shards.empty()) return;
  const std::string last = split.shards.size() > 1 ? " to " + split.shards.back() : "";
  say(name + ": " + contents(split.tokens, split.documents, split.text_bytes) + ": " + split.shards.front() + last);
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

// What a shard says of targets and rows, if it does.
std::string training_of(const ShardInfo& shard) {
  const std::string trained =
      shard.trained_tokens < shard.tokens ? ", targets " + percent(shard.trained_tokens, shard.tokens) + " of the tokens" : "";
  return trained + (shard.row > 0 ? ", packed in rows of " + std::to_string(shard.row) : "");
}

void say_lengths(const std::vector<std::string>& shards) {
  const DocumentLengths lengths = document_lengths(shards);
  say(std::string(
      text("documents of ", lengths.shortest, " to ", lengths.longest, " tokens, half of them of ", lengths.median, " or more")));
  const int64_t most = std::ranges::max(lengths.counts);
  for (size_t i = 0; i < lengths.counts.size() && lengths.documents > 0; ++i) {
    const int64_t least = int64_t{1} << i, count = lengths.counts[i];
    if (2 * least <= lengths.shortest || least > lengths.longest) continue;
    const std::string range = std::to_string(least) + " to " + std::to_string(2 * least - 1);
    const double share = 100 * static_cast<double>(count) / static_cast<double>(lengths.documents);
    const std::string bar(static_cast<size_t>((40 * count + most - 1) / most), '#');
    say(std::string(text(std::string(20 - std::min<size_t>(range.size(), 20), ' '), range, "  ", bar, bar.empty() ? "" : " ", count,
                         " (", fixed(share, 1), " %)")));
  }
}

void say_samples(const DataInfoOptions& options) {
  if (options.tokenizer.empty()) throw ConfigError("--samples: needs the --tokenizer that the shards were made with");
  const auto tokenizer = open_tokenizer(options.tokenizer);
  for (const SampleDocument& sample : sample_documents(options.shards, *tokenizer, options.samples, 600)) {
    say(std::string(text("-- ", sample.shard, ", document ", sample.number, ", ", sample.tokens, " tokens")));
    say(sample.text + (sample.cut ? " ..." : ""));
  }
}

void say_exclusion(const Exclusion& exclusion) {
  say(std::string(
      text(exclusion.path, ": ", exclusion.documents(), " excluded documents in ", exclusion.shards.size(), " shards")));
  for (const ExcludedShard& shard : exclusion.shards) {
    say(std::string(text("  ", shard.path, ", digest ", hex(shard.digest), ": ", shard.documents.size(), " documents")));
    for (const int64_t number : shard.documents) say("    " + std::to_string(number));
  }
}

}  // namespace

ExitCode run_data_build(const DataBuildOptions& options) {
  if (options.validation > 0 && !options.validation_inputs.empty())
    throw ConfigError("--validation and --validation-input: give one of them");
  const bool packed = options.pack == "best-fit";
  if (packed && options.context == 0) throw ConfigError("--pack best-fit: needs --context, the model.context to pack for");
  KernelsConfig cpu{.device = DeviceChoice::cpu};
  cpu.threads = options.threads;
  open_device(cpu, 1);  // sets the number of threads
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const BuildOptions build{.inputs = options.inputs,
                           .validation_inputs = options.validation_inputs,
                           .validation_fraction = options.validation,
                           .output = options.output,
                           .documents = {.field = options.field,
                                         .skip_bad = options.skip_errors,
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

ExitCode run_data_info(const DataInfoOptions& given) {
  DataInfoOptions options = given;
  std::erase_if(options.shards, [](const std::string& path) {
    const bool list = is_exclusion(path);
    if (list) say_exclusion(read_exclusion(path));
    return list;
  });
  if (options.shards.empty()) return ExitCode::done;
  ShardInfo all{};
  const std::vector<ShardInfo> infos = describe_shards(options.shards);
  for (const ShardInfo& shard : infos) {
    say(shard.path + ": " + contents(shard.tokens, shard.documents, shard.facts.text_bytes) + ", " +
        human_bytes(static_cast<double>(shard.file_bytes)) + " on disk, vocabulary " + std::to_string(shard.facts.vocab) +
        ", tokenizer " + shard.facts.tokenizer + training_of(shard) + ", digest " + hex(shard.digest));
    all.tokens += shard.tokens;
    all.documents += shard.documents;
    all.facts.text_bytes += shard.facts.text_bytes;
    all.trained_tokens += shard.trained_tokens;
  }
  if (infos.size() > 1)
    say(std::to_string(infos.size()) + " shards: " + contents(all.tokens, all.documents, all.facts.text_bytes) + training_of(all));
  if (options.lengths) say_lengths(options.shards);
  if (options.samples > 0) say_samples(options);
  return ExitCode::done;
}

ExitCode run_data_verify(const std::vector<std::string>& shards) {
  ExitCode code = ExitCode::done;
  std::optional<ProgressBar> bar;
  const auto told = [&](int64_t read, int64_t all) {
    if (!bar) bar.emplace("verifying", all, human_bytes);
    bar->update(read);
  };
  const std::vector<ShardVerdict> verdicts = verify_shards(shards, told);
  bar.reset();
  for (const ShardVerdict& verdict : verdicts) {
    if (verdict.problem.empty()) {
      say(verdict.path + ": whole, digest " + hex(verdict.digest));
    } else {
      complain(verdict.problem);
      code = ExitCode::data;
    }
  }
  return code;
}

}  // namespace trireme
