#include "train/cli/step_data.h"

#include <algorithm>
#include <filesystem>

#include "train/run/sources.h"
#include "train/telemetry/log.h"

namespace trireme {
namespace {

std::vector<double> weights_of(const DataRecord& record) {
  std::vector<double> weights;
  for (const DataRecord::Source& source : record.sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

OpenedData::OpenedData(DataRecord what, int64_t last_step, std::vector<Corpus> from)
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

bool OpenedData::leaves_out(int64_t step) const {
  return std::ranges::any_of(record.leave_out, [&](const std::string& words) {
    const auto range = parse_step_range(words);
    return range && range->first <= step && step <= range->last;
  });
}

StepData::StepData(const std::string& from, const std::vector<std::string>& set) {
  const bool run = std::filesystem::is_directory(from);
  const std::string directory = run ? run_of(from) : "";
  const RunConfig config = read_config(run ? directory + "/config.yaml" : from, set);
  steps_ = config.train.steps;
  if (run) records_ = recorded_data(directory);
  if (!records_.empty()) return;
  if (run) complain(directory + ": has no data.jsonl, the record of what each step has read; using config.yaml of its last start");
  std::vector<Corpus> sources = open_sources(config, nullptr, Comm());
  const Mixture mixture(sources, config.data.weights.empty() ? std::vector{1.0} : config.data.weights);
  records_.push_back(data_record(config, mixture, std::max<int64_t>(config.parallel.dp, 1), 0));
  opened_ = std::make_unique<OpenedData>(records_.front(), steps_, std::move(sources));
}

OpenedData& StepData::at(int64_t step) {
  size_t i = records_.size();
  while (i > 0 && records_[i - 1].after_step >= step) --i;
  if (i == 0)
    throw DataError(
        text("what step ", step, " has read is not recorded: the first record begins after step ", records_[0].after_step));
  const DataRecord& record = records_[i - 1];
  if (!opened_ || opened_->record != record) {
    opened_.reset();
    opened_ = std::make_unique<OpenedData>(record, i < records_.size() ? records_[i].after_step : steps_, open_recorded(record));
  }
  return *opened_;
}

StepRange StepData::range(const std::string& words) const {
  const std::optional<StepRange> range = parse_step_range(words);
  if (!range) throw ConfigError("--step " + words + ": must be a step or a range of them, such as 7 or 100-120");
  if (range->last > steps_) throw ConfigError(text("--step ", words, ": the run has train.steps = ", steps_));
  return *range;
}

std::vector<const ShardReader*> shards_of(const std::vector<Corpus>& sources) {
  std::vector<const ShardReader*> shards;
  for (const Corpus& corpus : sources)
    for (const ShardReader& shard : corpus.shards()) shards.push_back(&shard);
  return shards;
}

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

}  // namespace trireme
