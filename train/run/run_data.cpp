#include "train/run/run_data.h"

#include <algorithm>

#include "base/file.h"
#include "checkpoint/lineage.h"
#include "train/run/data_record.h"

namespace trireme {
namespace {

std::vector<double> weights_of(const RunConfig& config) {
  return config.data.weights.empty() ? std::vector{1.0} : config.data.weights;
}

// A changed data record, which may hide exchanged shards. One of another run is checked if it is there.
std::vector<std::string> check_record(const DataOfSteps& steps, const std::string& from, bool own, bool allow) {
  const auto expected = steps.restored.find("data");
  if (expected == steps.restored.end() || (!own && !path_exists(Io(), record_path(from)))) return {};
  std::string problem = changed_record(from, expected->second, steps.restored_run);
  if (problem.empty()) return {};
  if (!allow)
    throw DataError(problem +
                    ", and says which data the weights have seen: restore it, or continue with --resume-allow, which sets it "
                    "aside");
  if (!own) return {problem};
  if (const std::string aside = set_aside(Io(), record_path(from)); !aside.empty()) problem += ": kept as " + aside;
  return {problem};
}

std::vector<std::string> check_corpus(const DataOfSteps& steps, const ChainedDigest& now, bool allow) {
  const auto expected = steps.restored.find("corpus");
  if (expected == steps.restored.end() || expected->second == now) return {};
  const std::string problem = "data.train: its shards are not those that the checkpoint was trained on";
  if (!allow)
    throw ConfigError(problem + "\ntake these back, choose another train.name for a new run, or continue with --resume-allow");
  return {problem};
}

// Keeps the records of the run before when a run starts again on purpose.
std::string keep_aside(const std::string& directory) {
  std::string kept;
  for (const char* name : {"/metrics.jsonl", "/data.jsonl"})
    if (const std::string path = directory + name; !text_of_file(path).empty())
      kept += (kept.empty() ? "" : " and ") + set_aside(Io(), path);
  return kept.empty() ? "" : "starting from step 0; the records of the run before are kept as " + kept;
}

}  // namespace

int64_t RunData::tokens_of_document() const {
  int64_t tokens = 0, documents = 0;
  for (const Corpus& source : sources) tokens += source.tokens(), documents += source.documents();
  return documents > 0 ? tokens / documents : 0;
}

RunData::RunData(const RunConfig& config, const Comm& all, Journal& journal)
    : tokenizer(config.data.tokenizer.empty() ? nullptr : open_tokenizer(config.data.tokenizer)),
      sources(open_sources(config, tokenizer.get(), all, [&] { journal.disk_moved(); })),
      exclusions(exclude_documents(config, sources)),
      mixture(sources, weights_of(config)) {
  if (!config.data.validation.empty())
    validation.emplace(
        open_corpus(config, config.data.validation, "data.validation", true, tokenizer.get(), all, [&] { journal.disk_moved(); }));
  if (!config.train.eval_choices.empty()) choices = open_choice_tasks(config.train.eval_choices, *tokenizer, config.model);
}

LoaderOptions loader_options(const RunConfig& config, const Mesh& mesh) {
  return {.context = config.model.context,
          .batch = config.train.batch,
          .microbatch = config.microbatch_rows(mesh.replicas()),
          .replica = static_cast<int>(mesh.replica()),
          .replicas = static_cast<int>(mesh.replicas()),
          .seed = static_cast<uint64_t>(config.train.seed),
          .document_mask = config.model.document_mask,
          .restart_positions = config.model.restart_positions};
}

std::vector<const ShardReader*> RunData::shards() const {
  std::vector<const ShardReader*> all;
  for (const Corpus& corpus : mixture.sources())
    for (const ShardReader& shard : corpus.shards()) all.push_back(&shard);
  if (validation)
    for (const ShardReader& shard : validation->shards()) all.push_back(&shard);
  return all;
}

std::vector<std::string> record_data(const RunConfig& config, const RunData& data, const ResumeChoice& resume,
                                     const DataOfSteps& steps) {
  const DataRecord record = data_record(config, data.mixture, steps.replicas, steps.step);
  const bool own = resume.from == "auto" || resume.from == "never";
  std::vector<std::string> changes;
  if (steps.step > 0) {
    const std::string from = own ? steps.directory : run_of(resume.from);
    changes = check_record(steps, from, own, resume.allow_changes);
    for (std::string& line : compare_data(from, steps.step, record, resume.allow_changes)) changes.push_back(std::move(line));
    if (changes.empty()) changes = check_corpus(steps, shards_of(data.mixture.sources()), resume.allow_changes);
  } else if (resume.from == "never") {
    if (const std::string aside = keep_aside(steps.directory); !aside.empty()) changes.push_back(aside);
  }
  steps.records["data"] = keep_record(steps.directory, record, steps.run);
  steps.records["corpus"] = shards_of(data.mixture.sources());
  if (data.validation) {
    const ChainedDigest now = steps.records["validation"] = shards_of({&*data.validation, 1});
    if (const auto before = steps.restored.find("validation"); before != steps.restored.end() && before->second != now)
      changes.push_back(text("data.validation: its shards are not those before step ", steps.step,
                             ": validation losses before and after it are of different texts"));
  }
  if (steps.step == 0)
    for (std::string& doubt : doubt_tokenizer(config, data.mixture.source(0))) changes.push_back(std::move(doubt));
  if (!config.model.document_mask && std::ranges::any_of(data.sources, &Corpus::packed))
    changes.emplace_back(
        "warning: data.train: the documents are packed in rows, and with model.document_mask = false see one another");
  return changes;
}

}  // namespace trireme
