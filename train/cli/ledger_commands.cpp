// trireme data where, exclude: which documents steps have read, and which are not to be read again.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/json.h"
#include "data/build/inspect.h"
#include "data/documents/list_files.h"
#include "data/loader/data_lookup.h"
#include "kernels/device.h"
#include "train/cli/commands.h"
#include "train/run/data_record.h"
#include "train/run/sources.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataWhereOptions {
  static constexpr auto name = "data where";
  static constexpr auto about = "Lists the documents that a step reads, or the steps that read a document";
  std::string from;  // a run's directory, or a config
  std::vector<std::string> set;
  std::string step, document, file;
  int64_t replica = -1;  // -1: all
  int64_t text = 0;      // bytes
  std::string tokenizer;
  bool json = false;

  void visit(Options& o) {
    o("from", from, "A run's directory, or a config").required();
    o.set(set);
    o("--step", step, "A step or a range of them, such as 7 or 100-120");
    o("--document", document, "Lists the steps that read this one: SHARD:NUMBER");
    o("--file", file, "Lists the steps that read the documents of this file, named as in 'data build'");
    o("--replica", replica, "Only its rows", at_least(0));
    o("--text", text, "Also so many bytes of each document's text", at_least(1));
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", for --text; without: data.tokenizer");
    o("--json", json, "Prints JSON, a line for each row or document");
  }
};

struct DataExcludeOptions {
  static constexpr auto name = "data exclude";
  static constexpr auto about = "Makes a list of documents that runs with data.exclude do not train on";
  std::vector<std::string> from;  // a run's directory, or shards
  std::string output, documents, step, match, file, tokenizer;
  bool replace = false;

  void visit(Options& o) {
    o("from", from, "A run's directory, whose data is meant, or shards").required();
    o("--output", output, "The list to write; 'data info' tells what it holds").required();
    o("--documents", documents, "Documents by a file of lines SHARD:NUMBER");
    o("--step", step, "All documents that this step of the run reads, or a range of steps");
    o("--match", match, "Documents in whose text this regular expression is found");
    o("--file", file, "Documents of this file, named as in 'data build'");
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", for --match; without: the run's");
    o("--replace", replace, "Replaces the output");
  }
};

// What some steps of a run read, opened.
struct Opened {
  DataRecord record;
  int64_t last;  // of its steps
  std::vector<Corpus> sources;
  std::optional<Where> where{};

  Opened(DataRecord what, int64_t last_step, std::vector<Corpus> from)
      : record(std::move(what)), last(last_step), sources(std::move(from)) {
    where.emplace(Mixture(sources, weights_of(record)), LoaderOptions{.context = record.context,
                                                                      .batch = record.batch,
                                                                      .microbatch = record.microbatch,
                                                                      .replica = 0,
                                                                      .replicas = static_cast<int>(record.replicas),
                                                                      .seed = static_cast<uint64_t>(record.seed),
                                                                      .document_mask = true,
                                                                      .restart_positions = false});
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  static std::vector<double> weights_of(const DataRecord& record) {
    std::vector<double> weights;
    for (const DataRecord::Source& source : record.sources) weights.push_back(source.weight);
    return weights;
  }
  bool leaves_out(int64_t step) const {
    return std::ranges::any_of(record.leave_out, [&](const std::string& words) {
      const auto range = parse_step_range(words);
      return range && range->first <= step && step <= range->last;
    });
  }
};

// A run's directory, or a config: its steps, and what each reads.
class StepData {
 public:
  StepData(const std::string& from, const std::vector<std::string>& set) {
    const bool run = std::filesystem::is_directory(from);
    const std::string directory = run ? run_of(from) : "";
    const RunConfig config = read_config(run ? directory + "/config.yaml" : from, set);
    steps_ = config.train.steps;
    if (run) records_ = recorded_data(directory);
    if (!records_.empty()) return;
    if (run)
      complain(directory + ": has no data.jsonl, which tells what each step has read: taking config.yaml, of its last start");
    std::vector<Corpus> sources = open_sources(config, nullptr);
    const Mixture mixture(sources, config.data.weights.empty() ? std::vector{1.0} : config.data.weights);
    records_.push_back(data_record(config, mixture, std::max<int64_t>(config.parallel.dp, 1), 0));
    opened_ = std::make_unique<Opened>(records_.front(), steps_, std::move(sources));
  }

  int64_t steps() const { return steps_; }
  const std::vector<DataRecord>& records() const { return records_; }
  // What step number `step`, counted from 1, reads; valid until the next call.
  Opened& at(int64_t step) {
    size_t i = records_.size();
    while (i > 0 && records_[i - 1].after_step >= step) --i;
    if (i == 0)
      throw DataError(
          text("what step ", step, " has read is not recorded: the first record begins behind step ", records_[0].after_step));
    const DataRecord& record = records_[i - 1];
    if (!opened_ || opened_->record != record) {
      opened_.reset();
      opened_ = std::make_unique<Opened>(record, i < records_.size() ? records_[i].after_step : steps_, open_recorded(record));
    }
    return *opened_;
  }

  StepRange range(const std::string& words) const {
    const std::optional<StepRange> range = parse_step_range(words);
    if (!range) throw ConfigError("--step " + words + ": must be a step or a range of them, such as 7 or 100-120");
    if (range->last > steps_) throw ConfigError(text("--step ", words, ": the run has train.steps = ", steps_));
    return *range;
  }

 private:
  int64_t steps_;
  std::vector<DataRecord> records_;
  std::unique_ptr<Opened> opened_;
};

std::string line_of(const Json& json) { return json.dump(); }

std::string told_source(const DocumentSource& source) {
  if (source.file.empty()) return "";
  if (source.line == DocumentSource::kTokens) return ", " + source.file + ", token " + std::to_string(source.offset);
  if (source.line == DocumentSource::kWholeFile) return ", " + source.file;
  return text(", ", source.file, ":", source.line, ", byte ", source.offset);
}

Json json_of(const DocumentSource& source) {
  Json json{{"file", source.file}};
  json[source.line == DocumentSource::kTokens ? "token" : "offset"] = source.offset;
  if (source.line > 0) json["line"] = source.line;
  return json;
}

// What is shown of texts, by their tokenizer.
struct Texts {
  int64_t bytes = 0;
  std::unique_ptr<Tokenizer> tokenizer{};
};

std::unique_ptr<Tokenizer> tokenizer_for(const std::string& given, const std::string& recorded, const ShardReader& shard,
                                         const char* option) {
  const std::string& name = given.empty() ? recorded : given;
  if (name.empty()) throw ConfigError(std::string(option) + ": needs the --tokenizer that the shards were made with");
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(name);
  if (shard.facts().tokenizer != tokenizer->fingerprint())
    throw DataError(shard.path() + ": was made with tokenizer " + shard.facts().tokenizer + ", not with " +
                    tokenizer->fingerprint());
  return tokenizer;
}

void say_row(const Opened& opened, int64_t step, const WhereRow& row, const Texts& texts) {
  const ShardReader& shard = opened.where->shard(row.sample.source, row.shard);
  const std::string source = opened.sources.size() > 1 ? "source " + std::to_string(row.sample.source) + ", " : "";
  say(std::string(text("step ", step, ", row ", row.row, ", replica ", row.place.replica, ": ", source, shard.path(), ", sample ",
                       row.sample.sample, ", tokens ", row.begin, " to ", row.end - 1, ", epoch ", row.sample.epoch + 1)));
  for (const RowDocument& document : row.documents) {
    const std::string name = document.number < 0 ? "the rest of one begun in another shard (-1)" : std::to_string(document.number);
    say(std::string(
        text("  document ", name, ": tokens ", document.begin, " to ", document.end - 1, told_source(document.source))));
    if (texts.bytes == 0) continue;
    const auto [words, cut] = beginning_of(shard, document.number, *texts.tokenizer, texts.bytes);
    say("    " + line_of(words) + (cut ? " ..." : ""));  // on one line
  }
}

Json json_of(const Opened& opened, int64_t step, const WhereRow& row, const Texts& texts) {
  const ShardReader& shard = opened.where->shard(row.sample.source, row.shard);
  Json json{{"step", step},
            {"row", row.row},
            {"replica", row.place.replica},
            {"source", row.sample.source},
            {"shard", shard.path()},
            {"sample", row.sample.sample},
            {"epoch", row.sample.epoch},
            {"begin", row.begin},
            {"end", row.end},
            {"documents", Json::array()}};
  for (const RowDocument& document : row.documents) {
    Json one{{"number", document.number}, {"begin", document.begin}, {"end", document.end}};
    if (!document.source.file.empty()) one.update(json_of(document.source));
    if (texts.bytes > 0) one["text"] = beginning_of(shard, document.number, *texts.tokenizer, texts.bytes).text;
    json["documents"].push_back(std::move(one));
  }
  return json;
}

void say_steps(StepData& data, const DataWhereOptions& options) {
  const StepRange range = data.range(options.step);
  Texts texts{.bytes = options.text};
  for (int64_t step = range.first; step <= range.last; ++step) {
    Opened& opened = data.at(step);
    if (options.replica >= opened.record.replicas)
      throw ConfigError(text("--replica ", options.replica, ": step ", step, " has replicas 0 to ", opened.record.replicas - 1));
    if (texts.bytes > 0)
      texts.tokenizer = tokenizer_for(options.tokenizer, opened.record.tokenizer, opened.where->shard(0, 0), "--text");
    if (opened.leaves_out(step)) complain(std::string(text("step ", step, " is passed over, as train.leave_out says")));
    for (const WhereRow& row : opened.where->step(step - 1)) {
      if (options.replica >= 0 && row.place.replica != options.replica) continue;
      if (options.json)
        say(line_of(json_of(opened, step, row, texts)));
      else
        say_row(opened, step, row, texts);
    }
  }
}

std::vector<const ShardReader*> shards_of(const std::vector<Corpus>& sources) {
  std::vector<const ShardReader*> shards;
  for (const Corpus& corpus : sources)
    for (const ShardReader& shard : corpus.shards()) shards.push_back(&shard);
  return shards;
}

// A shard among those of all sources: which source's, and which of its own.
DocumentName name_of_piece(const std::vector<Corpus>& sources, DocumentChoice::Piece piece) {
  size_t source = 0;
  for (; piece.first >= sources[source].shards().size(); ++source) piece.first -= sources[source].shards().size();
  return {.source = source, .shard = piece.first, .number = piece.second};
}

// The steps in which documents are read.
void say_readings(StepData& data, const DataWhereOptions& options) {
  std::map<std::string, std::pair<std::string, std::set<int64_t>>> steps_of;  // by shard and number: its source, its steps
  for (const DataRecord& record : std::vector<DataRecord>(data.records())) {
    Opened& opened = data.at(record.after_step + 1);
    std::vector<DocumentName> names;
    if (!options.file.empty()) names = opened.where->documents_of(options.file);
    if (!options.document.empty())
      names.push_back(
          name_of_piece(opened.sources, DocumentChoice(shards_of(opened.sources)).document_named(options.document, "--document")));
    for (const DocumentName& name : names) {
      const std::string key = text(opened.where->shard(name.source, name.shard).path(), ":", name.number);
      auto& [source, steps] = steps_of[key];
      source = told_source(opened.where->source_of(name));
      for (const int64_t step : opened.where->steps_with(name, opened.last))
        if (step >= record.after_step && !opened.leaves_out(step + 1)) steps.insert(step + 1);
    }
  }
  if (steps_of.empty()) throw DataError("--file " + options.file + ": no document is known to come from it");
  for (const auto& [key, found] : steps_of) {
    if (options.json) {
      say(line_of({{"document", key}, {"steps", std::vector(found.second.begin(), found.second.end())}}));
      continue;
    }
    std::string list;
    for (const int64_t step : found.second) list += " " + std::to_string(step);
    say(key + found.first + ": " + (list.empty() ? "in no step" : "steps" + list));
  }
}

// All documents that these steps read.
void add_steps(DocumentChoice& choice, Opened& opened, const StepRange& steps) {
  for (int64_t step = steps.first; step <= steps.last; ++step)
    for (const WhereRow& row : opened.where->step(step - 1)) {
      size_t shard = row.shard;
      for (size_t i = 0; i < row.sample.source; ++i) shard += opened.sources[i].shards().size();
      for (const RowDocument& document : row.documents) choice.add(shard, document.number);
    }
}

// What the options name besides steps, and the file.
ExitCode exclude(DocumentChoice& choice, const DataExcludeOptions& options, const std::vector<Corpus>& sources,
                 const std::string& tokenizer) {
  if (!options.documents.empty()) choice.add_listed(options.documents);
  if (!options.file.empty()) choice.add_from(options.file);
  if (!options.match.empty()) {
    const TextPattern pattern(options.match);
    choice.add_matching(pattern, *tokenizer_for(options.tokenizer, tokenizer, sources.front().shards().front(), "--match"));
  }
  if (choice.size() == 0) throw DataError(options.output + ": is not made: no document is meant");
  const Exclusion exclusion = choice.exclusion(options.output);
  write_exclusion(exclusion);
  say(std::string(text(options.output, ": ", exclusion.documents(), " documents in ", exclusion.shards.size(),
                       " shards; train with data.exclude=", options.output)));
  return ExitCode::done;
}

ExitCode run_data_where(const DataWhereOptions& options) {
  const int asked = !options.step.empty() + !options.document.empty() + !options.file.empty();
  if (asked != 1) throw ConfigError("trireme data where: ask for one of --step, --document and --file");
  StepData data(options.from, options.set);
  if (options.step.empty())
    say_readings(data, options);
  else
    say_steps(data, options);
  return ExitCode::done;
}

ExitCode run_data_exclude(const DataExcludeOptions& options) {
  if (options.documents.empty() && options.step.empty() && options.match.empty() && options.file.empty())
    throw ConfigError("trireme data exclude: say which documents, by --documents, --step, --match or --file");
  if (std::filesystem::exists(options.output) && !options.replace)
    throw DataError(options.output + ": exists already: choose another name, or replace it with --replace");
  const bool of_run = options.from.size() == 1 && std::filesystem::exists(run_of(options.from[0]) + "/config.yaml");
  if (of_run) {
    StepData data(options.from[0], {});
    const StepRange steps = options.step.empty() ? StepRange{data.steps(), data.steps()} : data.range(options.step);
    Opened& opened = data.at(steps.last);
    if (opened.record.after_step >= steps.first)
      throw ConfigError(text("--step ", options.step, ": the run read other data from step ", opened.record.after_step + 1,
                             " on: make a list for the steps up to there, and another for those behind"));
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

std::unique_ptr<Command> data_where_command() { return make_command<DataWhereOptions>(run_data_where); }
std::unique_ptr<Command> data_exclude_command() { return make_command<DataExcludeOptions>(run_data_exclude); }

}  // namespace trireme
