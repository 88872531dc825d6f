#include "data/loader/corpus.h"

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/error.h"
#include "data/documents/list_files.h"

namespace trireme {

namespace {

// A directory that holds both splits is a mistake that would train on the held-out text.
void refuse_mixed_directory(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) continue;
    bool train = false, validation = false;
    for (const std::string& file : list_files({path}, ".h5")) {
      const std::string name = std::filesystem::path(file).filename().string();
      train |= name.starts_with("train-");
      validation |= name.starts_with("validation-");
    }
    if (train && validation)
      throw DataError(path + ": holds train and validation shards: name them as " + path + "/train-*.h5 or " + path +
                      "/validation-*.h5");
  }
}

// The first range that ends after `token`.
std::vector<ShardReader::TokenRange>::const_iterator silent_from(const std::vector<ShardReader::TokenRange>& ranges,
                                                                 int64_t token) {
  return std::ranges::upper_bound(ranges, token, {}, &ShardReader::TokenRange::end);
}

}  // namespace

Corpus::Corpus(const std::vector<std::string>& paths, int64_t context, bool keep_tail, int64_t overlap,
               const std::function<void()>& opened)
    : Corpus(SampleCut{context, overlap, keep_tail}) {
  if (paths.empty()) throw DataError("no token shards are named");
  refuse_mixed_directory(paths);
  add_shards(list_files(paths, ".h5"), opened);
}

Corpus Corpus::of_known(const std::vector<KnownShard>& shards, int64_t context, bool keep_tail, int64_t overlap) {
  Corpus corpus(SampleCut{context, overlap, keep_tail});
  corpus.add_shards(shards, {});
  return corpus;
}

void Corpus::add_shards(const auto& all, const std::function<void()>& added) {
  require(0 <= cut_.overlap && cut_.overlap < context(), text("a context of ", context(), " with an overlap of ", cut_.overlap));
  for (const auto& each : all) {
    const ShardReader& shard = shards_.emplace_back(each);
    expect_fit(shard);
    first_samples_.push_back(samples() + (shard.row() > 0 ? shard.tokens() / shard.row() : cut_.samples(shard.tokens())));
    if (added) added();
  }
  excluded_.resize(shards_.size());
  silent_.resize(shards_.size());
  if (samples() == 0)
    throw DataError(text(shards_.front().path(), ": ", tokens(), " tokens in ", shards_.size(),
                         " shards are too few for a sample of ", context() + 1));
}

void Corpus::expect_fit(const ShardReader& shard) const {
  const std::string& path = shard.path();
  if (shard.facts().tokenizer != fingerprint() || shard.facts().vocab != vocab())
    throw DataError(path + ": was made with tokenizer " + shard.facts().tokenizer + ", but " + shards_.front().path() + " with " +
                    fingerprint());
  if (shard.row() > 0 && shard.row() != context())
    throw DataError(text(path, ": is packed for samples of ", shard.row(), " tokens, not ", context(), ": set model.context to ",
                         shard.row(), ", or build it again for another --context"));
}

int64_t Corpus::documents() const {
  int64_t documents = 0;
  for (const ShardReader& shard : shards_) documents += shard.documents();
  return documents;
}

int64_t Corpus::tokens() const {
  int64_t sum = 0;
  for (const ShardReader& shard : shards_) sum += shard.tokens();
  return sum;
}

int64_t Corpus::text_bytes() const {
  int64_t sum = 0;
  for (const ShardReader& shard : shards_) sum += shard.facts().text_bytes;
  return sum;
}

double Corpus::tokens_per_byte() const {
  int64_t tokens = 0, bytes = 0;
  for (const ShardReader& shard : shards_) tokens += shard.trained_tokens(), bytes += shard.trained_bytes();
  return static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(1, bytes));
}

bool Corpus::packed() const {
  return std::ranges::any_of(shards_, [](const ShardReader& shard) { return shard.row() > 0; });
}

bool Corpus::padded() const {
  return std::ranges::any_of(shards_, &ShardReader::has_loss_mask) || targets() < samples() * context();
}

Corpus::Window Corpus::window(int64_t sample) const {
  require(0 <= sample && sample < samples(), text("sample ", sample, " of ", samples()));
  const auto after = std::upper_bound(first_samples_.begin(), first_samples_.end(), sample);
  const size_t shard = static_cast<size_t>(after - first_samples_.begin()) - 1;
  const int64_t number = sample - first_samples_[shard], row = shards_[shard].row();
  if (row > 0) return {shard, {.begin = number * row, .tokens = row, .context_only = 0, .predicting = row - 1}};
  return {shard, cut_.window(shards_[shard].tokens(), number)};
}

Corpus::SampleRange Corpus::samples_with(size_t shard, int64_t begin, int64_t end) const {
  const int64_t first = first_samples_[shard], count = first_samples_[shard + 1] - first, row = shards_[shard].row();
  const auto up = [](int64_t tokens, int64_t each) { return (tokens + each - 1) / each; };
  // The last target of a sample lies after its inputs, but for a row's.
  const int64_t from = row > 0 ? begin / row : begin > cut_.context ? up(begin - cut_.context, cut_.stride()) : 0;
  const int64_t to = up(end, row > 0 ? row : cut_.stride());
  return {first + std::min(from, count), first + std::max(std::min(from, count), std::min(to, count))};
}

int64_t Corpus::targets(int64_t sample) const {
  const auto [shard, part] = window(sample);
  return predicted(shard, part.begin + part.context_only, part.begin + part.predicting);
}

int64_t Corpus::targets() const {
  int64_t sum = 0;
  for (size_t s = 0; s < shards_.size(); ++s) {
    const ShardReader& shard = shards_[s];
    const int64_t count = first_samples_[s + 1] - first_samples_[s];
    int64_t inputs = std::max<int64_t>(shard.tokens() - 1, 0);  // of rows all: no first token of a row is a target
    if (shard.row() == 0) inputs = count > 0 ? std::min(inputs, count * cut_.stride() + cut_.overlap) : 0;
    sum += predicted(s, 0, inputs);
  }
  return sum;
}

// How many of the inputs [begin, end) have a target.
int64_t Corpus::predicted(size_t shard, int64_t begin, int64_t end) const {
  const auto of = [&](int64_t from, int64_t to) { return from < to ? shards_[shard].count_trained(from + 1, to + 1) : 0; };
  int64_t sum = of(begin, end);
  for (auto range = silent_from(silent_[shard], begin); range != silent_[shard].end() && range->begin < end; ++range)
    sum -= of(std::max(range->begin, begin), std::min(range->end, end));
  return sum;
}

int64_t Corpus::exclude(const Exclusion& exclusion) {
  int64_t here = 0;
  for (const ExcludedShard& wanted : exclusion.shards) {
    bool found = false;
    for (size_t s = 0; s < shards_.size(); ++s) {
      const ShardReader& shard = shards_[s];
      if (shard.digest() != wanted.digest) {
        if (std::filesystem::weakly_canonical(shard.path()) != wanted.path) continue;
        throw DataError(exclusion.path + ": was made for another content of " + shard.path() +
                        ": make it anew with 'trireme data exclude'");
      }
      found = true;
      exclude(s, wanted.documents, exclusion.path);
    }
    here += found;
  }
  return here;
}

void Corpus::exclude(size_t s, const std::vector<int64_t>& documents, const std::string& by) {
  const ShardReader& shard = shards_[s];
  std::vector<int64_t>& all = excluded_[s];
  for (const int64_t number : documents) {
    if (number < shard.first_document() || number >= shard.documents())
      throw DataError(text(by, ": excludes document ", number, " of ", shard.path(), ", which has ", shard.documents()));
    all.push_back(number);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  silent_[s].clear();
  for (const int64_t number : all) {
    const auto [begin, end] = shard.document(number);
    const int64_t from = std::max<int64_t>(begin - 1, 0);  // what predicts its first token
    if (!silent_[s].empty() && from <= silent_[s].back().end)
      silent_[s].back().end = end;
    else
      silent_[s].push_back({from, end});
  }
}

int64_t Corpus::excluded_documents() const {
  int64_t sum = 0;
  for (const auto& documents : excluded_) sum += std::ssize(documents);
  return sum;
}

uint64_t Corpus::excluded_digest() const {
  std::vector<uint64_t> words;
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (excluded_[s].empty()) continue;
    words.push_back(shards_[s].digest());
    for (const int64_t number : excluded_[s]) words.push_back(static_cast<uint64_t>(number));
  }
  return words.empty() ? 0 : trireme::digest(words.data(), std::ssize(words) * 8);
}

uint64_t Corpus::digest() const {
  std::vector<uint64_t> digests;
  for (const ShardReader& shard : shards_) digests.push_back(shard.digest());
  return trireme::digest(digests.data(), std::ssize(digests) * 8);
}

void Corpus::expect_tokenizer(const Tokenizer& tokenizer) const {
  if (tokenizer.fingerprint() == fingerprint() && tokenizer.vocab_size() == vocab()) return;
  throw DataError(shards_.front().path() + ": was made with tokenizer " + fingerprint() + ", not with " + tokenizer.fingerprint());
}

void Corpus::advise(int64_t sample) const {
  const auto [s, part] = window(sample);
  shards_[s].advise(part.begin, part.begin + std::max(part.tokens, part.predicting + 1));
}

void Corpus::read(int64_t sample, bool document_mask, bool restart_positions, const SampleRow& row) const {
  const auto [s, part] = window(sample);
  const ShardReader& shard = shards_[s];
  thread_local std::vector<int32_t> stream;
  stream.resize(static_cast<size_t>(std::max(part.tokens, part.predicting + 1)));
  shard.read(part.begin, stream);
  std::vector<int64_t> starts;
  if (row.positions != nullptr || row.document_start != nullptr)
    starts = shard.starts_between(part.begin, part.begin + cut_.context);
  const SampleContent content{
      .stream = stream, .starts = starts, .document_mask = document_mask, .restart_positions = restart_positions};
  fill_sample(cut_, part, content, row);
  const int64_t begin = part.begin, end = begin + part.predicting;
  if (shard.has_loss_mask()) {
    std::vector<uint8_t> trained(static_cast<size_t>(part.predicting));
    shard.read_trained(begin + 1, trained);
    for (size_t i = 0; i < trained.size(); ++i)
      if (trained[i] == 0) row.targets[i] = -1;
  }
  for (auto range = silent_from(silent_[s], begin); range != silent_[s].end() && range->begin < end; ++range)
    std::fill(row.targets + std::max(range->begin - begin, int64_t{0}), row.targets + std::min(range->end, end) - begin, -1);
}

}  // namespace trireme
