// trireme data where: the documents that steps read, and the steps that read a document.
#include <map>
#include <set>

#include "base/json.h"
#include "data/build/inspect.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/cli/step_data.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataWhereOptions {
  static constexpr auto name = "data where";
  static constexpr auto about = "List the documents that a step reads, or the steps that read a document";
  std::string from;  // a run's directory, or a config
  std::vector<std::string> set;
  std::string step, document, file;
  int64_t replica = -1;  // -1: all
  int64_t text = 0;      // bytes
  std::string tokenizer;
  std::string json;

  void visit(Options& o) {
    o("from", from, "Directory of a run, or a config").required();
    o.set(set);
    o("--step", step, "Step or range of steps to list, such as 7 or 100-120");
    o("--document", document, "Document SHARD:NUMBER, to list the steps that read it");
    o("--file", file, "File, named as in 'data build', to list the steps that read its documents");
    o("--replica", replica, "Replica whose rows are listed; default: all", at_least(0));
    o("--text", text, "Bytes of each document's text to print; default: none", at_least(1));
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", for --text; default: data.tokenizer");
    o.json(json);
  }
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

// Texts as they are shown, by their tokenizer.
struct Texts {
  int64_t bytes = 0;
  std::unique_ptr<Tokenizer> tokenizer{};
};

void say_row(const OpenedData& opened, int64_t step, const WhereRow& row, const Texts& texts) {
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

Json json_of(const OpenedData& opened, int64_t step, const WhereRow& row, const Texts& texts) {
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

void say_steps(StepData& data, const DataWhereOptions& options, JsonOutput& json) {
  const StepRange range = data.range(options.step);
  Texts texts{.bytes = options.text};
  for (int64_t step = range.first; step <= range.last; ++step) {
    OpenedData& opened = data.at(step);
    if (options.replica >= opened.record.replicas)
      throw ConfigError(text("--replica ", options.replica, ": step ", step, " has replicas 0 to ", opened.record.replicas - 1));
    if (texts.bytes > 0)
      texts.tokenizer = tokenizer_for(options.tokenizer, opened.record.tokenizer, opened.where->shard(0, 0), "--text");
    if (opened.leaves_out(step)) complain(std::string(text("step ", step, " is left out, as train.leave_out says")));
    for (const WhereRow& row : opened.where->step(step - 1)) {
      if (options.replica >= 0 && row.place.replica != options.replica) continue;
      if (json.wanted())
        json.write_line(json_of(opened, step, row, texts));
      else
        say_row(opened, step, row, texts);
    }
  }
}

// A shard among those of all sources: which source's, and which of its own.
DocumentName name_of_piece(const std::vector<Corpus>& sources, DocumentChoice::Piece piece) {
  size_t source = 0;
  for (; piece.first >= sources[source].shards().size(); ++source) piece.first -= sources[source].shards().size();
  return {.source = source, .shard = piece.first, .number = piece.second};
}

// The steps in which documents are read.
void say_readings(StepData& data, const DataWhereOptions& options, JsonOutput& json) {
  std::map<std::string, std::pair<std::string, std::set<int64_t>>> steps_of;  // by shard and number: its source, its steps
  for (const DataRecord& record : std::vector<DataRecord>(data.records())) {
    OpenedData& opened = data.at(record.after_step + 1);
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
    if (json.wanted()) {
      json.write_line({{"document", key}, {"steps", std::vector(found.second.begin(), found.second.end())}});
      continue;
    }
    std::string list;
    for (const int64_t step : found.second) list += " " + std::to_string(step);
    say(key + found.first + ": " + (list.empty() ? "in no step" : "steps" + list));
  }
}

ExitCode run_data_where(const DataWhereOptions& options) {
  const int asked = !options.step.empty() + !options.document.empty() + !options.file.empty();
  if (asked != 1) throw ConfigError("trireme data where: ask for one of --step, --document and --file");
  JsonOutput json(options.json);
  StepData data(options.from, options.set);
  if (options.step.empty())
    say_readings(data, options, json);
  else
    say_steps(data, options, json);
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> data_where_command() { return make_command<DataWhereOptions>(run_data_where); }

}  // namespace trireme
