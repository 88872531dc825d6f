#include "train/run/run_data.h"

#include <algorithm>

#include "train/run/data_record.h"

namespace trireme {
namespace {

std::vector<double> weights_of(const RunConfig& config) {
  return config.data.weights.empty() ? std::vector{1.0} : config.data.weights;
}

}  // namespace

RunData::RunData(const RunConfig& config, Journal& journal)
    : tokenizer(config.data.tokenizer.empty() ? nullptr : open_tokenizer(config.data.tokenizer)),
      sources(open_sources(config, tokenizer.get(), [&] { journal.disk_moved(); })),
      exclusions(exclude_documents(config, sources)),
      mixture(sources, weights_of(config)) {
  if (!config.data.validation.empty())
    validation.emplace(open_corpus(config, config.data.validation, "data.validation", true, tokenizer.get()));
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

std::vector<std::string> record_data(const RunConfig& config, const RunData& data, const ResumeChoice& resume,
                                     const DataOfSteps& steps) {
  const DataRecord record = data_record(config, data.mixture, steps.replicas, steps.step);
  const bool own = resume.from == "auto" || resume.from == "never";
  std::vector<std::string> changes;
  if (steps.step > 0) changes = compare_data(own ? steps.directory : run_of(resume.from), steps.step, record, resume.allow_changes);
  keep_record(steps.directory, record);
  if (steps.step == 0) changes = doubt_tokenizer(config, data.mixture.source(0));
  if (!config.model.document_mask && std::ranges::any_of(data.sources, &Corpus::packed))
    changes.emplace_back(
        "warning: data.train: the documents are packed in rows, and with model.document_mask = false see one another");
  return changes;
}

}  // namespace trireme
