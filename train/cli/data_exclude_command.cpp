// trireme data exclude: which documents are not to be read again.
#include <algorithm>
#include <filesystem>

#include "data/build/inspect.h"
#include "data/documents/list_files.h"
#include "train/cli/commands.h"
#include "train/cli/output_path.h"
#include "train/cli/step_data.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataExcludeOptions {
  static constexpr auto name = "data exclude";
  static constexpr auto about = "Write a list of documents that runs with data.exclude do not train on";
  std::vector<std::string> from;  // a run's directory, or shards
  std::string output, documents, step, match, file, tokenizer;
  bool replace = false;

  void visit(Options& o) {
    o("from", from, "A run's directory, whose data is meant, or shards").required();
    o("--output", output, "List to write; 'data info' prints it").required();
    o("--documents", documents, "File of lines SHARD:NUMBER that name documents");
    o("--step", step, "All documents that this step of the run reads, or a range of steps");
    o("--match", match, "Documents in whose text this regular expression is found");
    o("--file", file, "Documents of this file, named as in 'data build'");
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", for --match; without: the run's");
    o("--replace", replace, "Replace the output");
  }
};

// All documents that these steps read.
void add_steps(DocumentChoice& choice, OpenedData& opened, const StepRange& steps) {
  for (int64_t step = steps.first; step <= steps.last; ++step)
    for (const WhereRow& row : opened.where->step(step - 1)) {
      size_t shard = row.shard;
      for (size_t i = 0; i < row.sample.source; ++i) shard += opened.sources[i].shards().size();
      for (const RowDocument& document : row.documents) choice.add(shard, document.number);
    }
}

// Adds what the options name besides steps, and writes the file.
ExitCode exclude(DocumentChoice& choice, const DataExcludeOptions& options, const std::vector<Corpus>& sources,
                 const std::string& tokenizer) {
  if (!options.documents.empty()) choice.add_listed(options.documents);
  if (!options.file.empty()) choice.add_from(options.file);
  if (!options.match.empty()) {
    const TextPattern pattern(options.match);
    choice.add_matching(pattern, *tokenizer_for(options.tokenizer, tokenizer, sources.front().shards().front(), "--match"));
  }
  if (choice.size() == 0) throw DataError(options.output + ": not written: no document matches");
  const Exclusion exclusion = choice.exclusion(options.output);
  write_exclusion(exclusion);
  say(std::string(text(options.output, ": ", exclusion.documents(), " documents in ", exclusion.shards.size(),
                       " shards; train with data.exclude=", options.output)));
  return ExitCode::done;
}

ExitCode run_data_exclude(const DataExcludeOptions& options) {
  if (options.documents.empty() && options.step.empty() && options.match.empty() && options.file.empty())
    throw ConfigError("trireme data exclude: choose documents with --documents, --step, --match or --file");
  if (is_stream(options.output)) throw DataError(options.output + ": is not a regular file: name the list to write");
  if (std::filesystem::exists(options.output) && !options.replace)
    throw DataError(options.output + ": exists already: choose another name, or replace it with --replace");
  const PreparedOutput output = prepare_output(options.output, OutputKind::replaced_file);
  const bool of_run = options.from.size() == 1 && std::filesystem::exists(run_of(options.from[0]) + "/config.yaml");
  if (of_run) {
    StepData data(options.from[0], {});
    const StepRange steps = options.step.empty() ? StepRange{data.steps(), data.steps()} : data.range(options.step);
    OpenedData& opened = data.at(steps.last);
    if (opened.record.after_step >= steps.first)
      throw ConfigError(text("--step ", options.step, ": the run read other data from step ", opened.record.after_step + 1,
                             " on: make a list for the steps up to there, and another for later ones"));
    DocumentChoice choice(shards_of(opened.sources));
    if (!options.step.empty()) add_steps(choice, opened, steps);
    return exclude(choice, options, opened.sources, opened.record.tokenizer);
  }
  if (!options.step.empty()) throw ConfigError("--step: needs a run's directory in place of shards");
  std::vector<Corpus> shards;
  int64_t context = 1;  // packed shards are read for theirs alone
  for (const std::string& path : list_files(options.from, ".h5")) context = std::max(context, ShardReader(path).row());
  shards.emplace_back(options.from, context, true);
  DocumentChoice choice(shards_of(shards));
  return exclude(choice, options, shards, "");
}

}  // namespace

std::unique_ptr<Command> data_exclude_command() { return make_command<DataExcludeOptions>(run_data_exclude); }

}  // namespace trireme
