#include "train/run/sources.h"

#include <filesystem>
#include <map>

#include "base/number_format.h"
#include "train/hub/published_config.h"
#include "train/run/shared_shards.h"

namespace trireme {

Corpus open_corpus(const RunConfig& config, const std::vector<std::string>& paths, const char* key, bool held_out,
                   const Tokenizer* tokenizer, const Comm& all, const std::function<void()>& opened) {
  const int64_t T = config.model.context;
  const int64_t overlap = held_out ? static_cast<int64_t>(config.train.eval_overlap * static_cast<double>(T)) : 0;
  Corpus corpus = open_shared(
      all, [&] { return Corpus(paths, T, held_out, overlap, opened); },
      [&](const std::vector<KnownShard>& known) { return Corpus::of_known(known, T, held_out, overlap); });
  if (corpus.vocab() > config.model.vocab)
    throw ConfigError(
        text(key, ": its tokens come from a vocabulary of ", corpus.vocab(), ", but model.vocab = ", config.model.vocab));
  if (tokenizer != nullptr) corpus.expect_tokenizer(*tokenizer);
  return corpus;
}

std::vector<Corpus> open_sources(const RunConfig& config, const Tokenizer* tokenizer, const Comm& all,
                                 const std::function<void()>& opened) {
  std::vector<Corpus> sources;
  const std::vector<std::string>& entries = config.data.train;
  if (config.data.weights.empty()) sources.push_back(open_corpus(config, entries, "data.train", false, tokenizer, all, opened));
  std::map<std::filesystem::path, size_t> entry_of;  // by shard
  for (size_t i = 0; i < config.data.weights.size(); ++i) {
    sources.push_back(open_corpus(config, {entries[i]}, "data.train", false, tokenizer, all, opened));
    if (all.rank() > 0) continue;  // rank 0 looks
    for (const ShardReader& shard : sources.back().shards())
      if (const auto [first, fresh] = entry_of.emplace(std::filesystem::weakly_canonical(shard.path()), i); !fresh)
        throw ConfigError(text("data.train: ", shard.path(), " is in ", entries[first->second], " and in ", entries[i],
                               ": with data.weights a shard belongs to one source"));
  }
  return sources;
}

std::vector<std::string> exclude_documents(const RunConfig& config, std::vector<Corpus>& sources) {
  std::vector<std::string> lines;
  const auto excluded = [&] {
    int64_t documents = 0;
    for (const Corpus& corpus : sources) documents += corpus.excluded_documents();
    return documents;
  };
  for (const std::string& path : config.data.exclude) {
    const Exclusion exclusion = read_exclusion(path);
    const int64_t before = excluded();
    int64_t here = 0;
    for (Corpus& corpus : sources) here += corpus.exclude(exclusion);
    lines.push_back(here == 0 ? std::string(text("warning: data.exclude: ", path, ": none of its shards is in data.train"))
                              : std::string(text(path, ": ", excluded() - before, " documents are not trained on")));
    if (const auto all = std::ssize(exclusion.shards); 0 < here && here < all)
      lines.push_back(text("warning: data.exclude: ", path, ": ", all - here, " of its ", all, " shards are not in data.train"));
  }
  return lines;
}

std::vector<std::string> doubt_tokenizer(const RunConfig& config, const Corpus& corpus) {
  const std::string path = published_tokenizer(config.train.init_from);
  if (config.train.init_from.empty() || path.empty()) return {};
  try {
    const std::string its = open_tokenizer(path)->fingerprint();
    if (its == corpus.fingerprint()) return {};
    return {text("warning: data.train: was made with tokenizer ", corpus.fingerprint(), ", but train.init_from was trained with ",
                 its, ": where their ids differ, the model has learnt other words for them. `trireme data build --tokenizer ", path,
                 "` makes shards of its own")};
  } catch (const Error& problem) {
    return {text("warning: train.init_from: its tokenizer cannot be compared with the shards': ", problem.what())};
  }
}

std::vector<std::string> describe_sources(const RunConfig& config, const Mixture& mixture) {
  std::vector<std::string> lines;
  const int64_t all = config.train.steps * config.train.batch;
  for (size_t i = 0; i < mixture.sources().size() && mixture.sources().size() > 1; ++i) {
    const Corpus& source = mixture.source(i);
    const auto count = static_cast<double>(mixture.turns().count(i, all));
    lines.push_back(text(config.data.train[i], ": ", fixed(100 * count / static_cast<double>(all), 2), " % of the samples, ",
                         fixed(count / static_cast<double>(source.samples()), 2), " epochs of ",
                         human_count(static_cast<double>(source.tokens())), " tokens in the whole run"));
  }
  return lines;
}

}  // namespace trireme
