#include "data/loader/data_lookup.h"

#include <algorithm>

namespace trireme {

Where::Where(Mixture mixture, const LoaderOptions& options) : mixture_(std::move(mixture)), options_(options) {}

const std::optional<Provenance>& Where::provenance(size_t source, size_t number) {
  const auto found = provenance_.find({source, number});
  if (found != provenance_.end()) return found->second;
  return provenance_.emplace(std::pair(source, number), Provenance::read(shard(source, number))).first->second;
}

DocumentSource Where::source_of(const DocumentName& document) {
  const auto& known = provenance(document.source, document.shard);
  return known ? known->of(document.number) : DocumentSource{};
}

std::vector<WhereRow> Where::step(int64_t step) {
  std::vector<WhereRow> rows;
  for (int64_t row = 0; row < options_.batch; ++row) {
    const Mixture::Sample sample = mixture_.at(step * options_.batch + row, options_.seed);
    const Corpus::Window window = mixture_.source(sample.source).window(sample.sample);
    WhereRow& found =
        rows.emplace_back(WhereRow{.row = row,
                                   .place = place_of(options_, row),
                                   .sample = sample,
                                   .shard = window.shard,
                                   .begin = window.part.begin,
                                   .end = window.part.begin + std::max(window.part.tokens, window.part.predicting + 1),
                                   .documents = {}});
    const ShardReader& reader = shard(sample.source, window.shard);
    for (int64_t at = found.begin; at < found.end; at = found.documents.back().end) {
      const int64_t number = reader.document_at(at);
      found.documents.push_back({.number = number,
                                 .begin = at,
                                 .end = std::min(found.end, reader.document(number).end),
                                 .source = source_of({sample.source, window.shard, number})});
    }
  }
  return rows;
}

std::vector<int64_t> Where::steps_with(const DocumentName& document, int64_t end) const {
  const Corpus& corpus = mixture_.source(document.source);
  const auto [from, to] = corpus.shards()[document.shard].document(document.number);
  const auto [first, last] = corpus.samples_with(document.shard, from, to);
  std::vector<int64_t> steps;
  for (int64_t sample = first; sample < last; ++sample) {
    for (int64_t epoch = 0;; ++epoch) {  // each later than the one before
      const int64_t g = mixture_.number_of({.source = document.source, .sample = sample, .epoch = epoch}, options_.seed);
      if (g / options_.batch >= end) break;
      steps.push_back(g / options_.batch);
    }
  }
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::vector<DocumentName> Where::documents_of(const std::string& file) {
  std::vector<DocumentName> found;
  for (size_t source = 0; source < mixture_.sources().size(); ++source) {
    const std::vector<ShardReader>& shards = mixture_.source(source).shards();
    for (size_t s = 0; s < shards.size(); ++s) {
      const auto& known = provenance(source, s);
      if (!known) continue;
      const int64_t documents = shards[s].documents();
      for (int64_t number = shards[s].first_document(); number < documents; ++number)
        if (known->file_of(number) == file) found.push_back({source, s, number});
    }
  }
  return found;
}

}  // namespace trireme
