// trireme data info, verify.
#include <algorithm>
#include <optional>

#include "checkpoint/digest.h"
#include "data/build/inspect.h"
#include "data/shard/exclusion.h"
#include "train/cli/commands.h"
#include "train/cli/data_contents.h"
#include "train/cli/json_output.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

struct DataInfoOptions {
  static constexpr auto name = "data info";
  static constexpr auto about = "Report the contents of shards and of lists of excluded documents";
  std::vector<std::string> shards;
  bool lengths = false;
  int64_t samples = 0;
  std::string tokenizer, json;

  void visit(Options& o) {
    o("shards", shards, "Shards, directories of them, or lists of excluded documents").required();
    o("--lengths", lengths, "Add the distribution of the lengths of documents; default: none");
    o("--samples", samples, "Add the text of this many documents; default: none", at_least(1));
    o("--tokenizer", tokenizer, std::string(kTokenizers) + ", for --samples");
    o.json(json);
  }
};

struct DataVerifyOptions {
  static constexpr auto name = "data verify";
  static constexpr auto about = "Read every byte of shards and check it against their digests";
  std::vector<std::string> shards;
  std::string json;
  void visit(Options& o) {
    o("shards", shards, "Shards, or directories of them").required();
    o.json(json);
  }
};

// Targets, rows and chat template of a shard, if it has such.
std::string training_of(const ShardInfo& shard) {
  const std::string trained =
      shard.trained_tokens < shard.tokens ? ", targets " + percent(shard.trained_tokens, shard.tokens) + " of the tokens" : "";
  const std::string chat = shard.chat_template.empty() ? "" : ", chat template " + shard.chat_template;
  return trained + chat + (shard.row > 0 ? ", packed in rows of " + std::to_string(shard.row) : "");
}

void say_lengths(const DocumentLengths& lengths) {
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

std::vector<SampleDocument> read_samples(const DataInfoOptions& options) {
  if (options.tokenizer.empty()) throw ConfigError("--samples: needs the --tokenizer that the shards were made with");
  const auto tokenizer = open_tokenizer(options.tokenizer);
  return sample_documents(options.shards, *tokenizer, options.samples, 600);
}

void say_sample(const SampleDocument& sample) {
  say(std::string(text("-- ", sample.shard, ", document ", sample.number, ", ", sample.tokens, " tokens")));
  say(sample.text + (sample.cut ? " ..." : ""));
}

void say_exclusion(const Exclusion& exclusion) {
  say(std::string(
      text(exclusion.path, ": ", exclusion.documents(), " excluded documents in ", exclusion.shards.size(), " shards")));
  for (const ExcludedShard& shard : exclusion.shards) {
    say(std::string(text("  ", shard.path, ", digest ", hex(shard.digest), ": ", shard.documents.size(), " documents")));
    for (const int64_t number : shard.documents) say("    " + std::to_string(number));
  }
}

Json json_of(const Exclusion& exclusion) {
  Json shards = Json::array();
  for (const ExcludedShard& shard : exclusion.shards)
    shards.push_back({{"path", shard.path}, {"digest", hex(shard.digest)}, {"documents", shard.documents}});
  return {{"path", exclusion.path}, {"documents", exclusion.documents()}, {"shards", shards}};
}

Json json_of(const ShardInfo& shard) {
  return {{"path", shard.path},
          {"tokens", shard.tokens},
          {"documents", shard.documents},
          {"text_bytes", shard.facts.text_bytes},
          {"file_bytes", shard.file_bytes},
          {"vocab", shard.facts.vocab},
          {"tokenizer", shard.facts.tokenizer},
          {"target_tokens", shard.trained_tokens},
          {"row_tokens", shard.row},
          {"chat_template", shard.chat_template},
          {"digest", hex(shard.digest)}};
}

Json json_of(const DocumentLengths& lengths) {
  Json ranges = Json::array();
  for (size_t i = 0; i < lengths.counts.size(); ++i)
    if (const int64_t count = lengths.counts[i]; count > 0)
      ranges.push_back({{"from_tokens", int64_t{1} << i}, {"below_tokens", int64_t{2} << i}, {"documents", count}});
  return {{"documents", lengths.documents},
          {"shortest_tokens", lengths.shortest},
          {"median_tokens", lengths.median},
          {"longest_tokens", lengths.longest},
          {"ranges", ranges}};
}

Json json_of(const SampleDocument& sample) {
  return {
      {"shard", sample.shard}, {"number", sample.number}, {"tokens", sample.tokens}, {"text", sample.text}, {"cut", sample.cut}};
}

// Describes the shards of `infos`, and returns that as JSON.
Json say_shards(const std::vector<ShardInfo>& infos) {
  ShardInfo all{};
  Json shards = Json::array();
  for (const ShardInfo& shard : infos) {
    say(shard.path + ": " + data_contents(shard.tokens, shard.documents, shard.facts.text_bytes) + ", " +
        human_bytes(static_cast<double>(shard.file_bytes)) + " on disk, vocabulary " + std::to_string(shard.facts.vocab) +
        ", tokenizer " + shard.facts.tokenizer + training_of(shard) + ", digest " + hex(shard.digest));
    shards.push_back(json_of(shard));
    all.tokens += shard.tokens;
    all.documents += shard.documents;
    all.facts.text_bytes += shard.facts.text_bytes;
    all.file_bytes += shard.file_bytes;
    all.trained_tokens += shard.trained_tokens;
  }
  if (infos.size() > 1)
    say(std::to_string(infos.size()) + " shards: " + data_contents(all.tokens, all.documents, all.facts.text_bytes) +
        training_of(all));
  const Json total{{"tokens", all.tokens},
                   {"documents", all.documents},
                   {"text_bytes", all.facts.text_bytes},
                   {"file_bytes", all.file_bytes},
                   {"target_tokens", all.trained_tokens}};
  return {{"shards", shards}, {"total", total}};
}

ExitCode run_data_info(const DataInfoOptions& given) {
  JsonOutput json(given.json);
  DataInfoOptions options = given;
  Json found, exclusions = Json::array();
  std::erase_if(options.shards, [&](const std::string& path) {
    if (!is_exclusion(path)) return false;
    const Exclusion exclusion = read_exclusion(path);
    say_exclusion(exclusion);
    exclusions.push_back(json_of(exclusion));
    return true;
  });
  if (!options.shards.empty()) found = say_shards(describe_shards(options.shards));
  if (!options.shards.empty() && options.lengths) {
    const DocumentLengths lengths = document_lengths(options.shards);
    say_lengths(lengths);
    found["lengths"] = json_of(lengths);
  }
  if (!options.shards.empty() && options.samples > 0) {
    for (const SampleDocument& sample : read_samples(options)) {
      say_sample(sample);
      found["samples"].push_back(json_of(sample));
    }
  }
  if (exclusions.size() > 0) found["exclusions"] = exclusions;
  json.write(found);
  return ExitCode::done;
}

ExitCode run_data_verify(const DataVerifyOptions& options) {
  JsonOutput json(options.json);
  ExitCode code = ExitCode::done;
  std::optional<ProgressBar> bar;
  const auto show = [&](int64_t read, int64_t all) {
    if (!bar) bar.emplace("verifying", all, human_bytes);
    bar->update(read);
  };
  const std::vector<ShardVerdict> verdicts = verify_shards(options.shards, show);
  bar.reset();
  Json shards = Json::array();
  for (const ShardVerdict& verdict : verdicts) {
    if (verdict.problem.empty()) {
      say(verdict.path + ": undamaged, digest " + hex(verdict.digest));
      shards.push_back({{"path", verdict.path}, {"undamaged", true}, {"digest", hex(verdict.digest)}, {"problem", nullptr}});
    } else {
      complain(verdict.problem);
      shards.push_back({{"path", verdict.path}, {"undamaged", false}, {"problem", verdict.problem}});
      code = ExitCode::data;
    }
  }
  json.write({{"shards", shards}});
  return code;
}

}  // namespace

std::unique_ptr<Command> data_info_command() { return make_command<DataInfoOptions>(run_data_info); }
std::unique_ptr<Command> data_verify_command() { return make_command<DataVerifyOptions>(run_data_verify); }

}  // namespace trireme
