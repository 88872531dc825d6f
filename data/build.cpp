#include "data/build.h"

#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>
#include <set>

#include "kernels/check.h"
#include "kernels/device.h"
#include "kernels/philox.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
constexpr int64_t kBatch = 16 << 20;  // bytes of text encoded together

// Passages on their way to the shards.
struct EncodedBatch {
  std::vector<Passage> passages;
  std::vector<std::vector<int32_t>> tokens;  // of each
  int64_t bytes_read;                        // of the files, up to its end
};

// Encodes on all threads; the first failure is rethrown.
std::vector<std::vector<int32_t>> encode_all(const std::vector<Passage>& passages, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> tokens(passages.size());
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (size_t i = 0; i < passages.size(); ++i) {
    try {
      tokenizer.encode(passages[i].text, tokens[i]);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return tokens;
}

bool held_out(const Passage& first, double fraction) {
  return unit(philox64(stream_key(0, "validation"), XXH3_64bits(first.text.data(), first.text.size()))) < fraction;
}

std::vector<std::string> without(std::vector<std::string> files, const std::vector<std::string>& others) {
  std::set<fs::path> same;
  for (const std::string& file : others) same.insert(fs::weakly_canonical(file));
  std::erase_if(files, [&](const std::string& file) { return same.contains(fs::weakly_canonical(file)); });
  return files;
}

void check(const BuildOptions& options) {
  if (options.validation_fraction < 0 || options.validation_fraction >= 1)
    throw ConfigError(text("validation fraction ", options.validation_fraction, ": at least 0 and below 1"));
  if (options.validation_fraction > 0 && !options.validation_inputs.empty())
    throw ConfigError("validation inputs and a validation fraction are two ways to say one thing: give one");
  check_shard_tokens(options.tokens_per_shard);
}

}  // namespace

BuildSummary build_shards(const BuildOptions& options, const Tokenizer& tokenizer,
                          const std::function<void(const BuildProgress&)>& progress) {
  check(options);
  const std::vector<std::string> splits{"train", "validation"};
  make_room_for_shards(options.output, splits, options.replace);
  BuildSummary summary;
  SplitWriter train(options.output, "train", tokenizer, options.tokens_per_shard, summary.train),
      validation(options.output, "validation", tokenizer, options.tokens_per_shard, summary.validation);
  // Reads `files` to the end; what is not held out goes to `others`.
  const auto read = [&](const std::vector<std::string>& files, double fraction, SplitWriter& others) {
    Documents documents(files, options.documents);
    bool held = false;
    const int threads = threads_here();
    const auto take = [&, threads] {
      use_threads_here(threads);  // also on a thread of its own
      EncodedBatch batch{.passages = documents.next(kBatch), .tokens = {}, .bytes_read = 0};
      batch.bytes_read = documents.bytes_read();
      return batch;
    };
    const auto write = [&](const EncodedBatch& batch) {
      for (size_t i = 0; i < batch.passages.size(); ++i) {
        const Passage& passage = batch.passages[i];
        if (passage.starts) held = held_out(passage, fraction);
        (held ? validation : others).add(batch.tokens[i], passage.starts, passage.ends);
      }
      progress({batch.bytes_read, documents.bytes_total(), summary.train.documents + summary.validation.documents,
                summary.train.tokens + summary.validation.tokens});
    };
    // While a batch is encoded the next one is read, and the one before it written; by one thread alone one after the other.
    const auto when = threads > 1 ? std::launch::async : std::launch::deferred;
    std::future<void> written;
    for (EncodedBatch batch = take(); !batch.passages.empty();) {
      std::future<EncodedBatch> next = std::async(when, take);
      batch.tokens = encode_all(batch.passages, tokenizer);
      if (written.valid()) written.get();
      written = std::async(when, [&write, whole = std::move(batch)] { write(whole); });
      batch = next.get();
    }
    if (written.valid()) written.get();
    summary.skipped += documents.skipped();
    summary.problems.insert(summary.problems.end(), documents.problems().begin(), documents.problems().end());
  };
  const auto validation_files = list_files(options.validation_inputs);
  read(without(list_files(options.inputs), validation_files), options.validation_fraction, train);
  read(validation_files, 0, validation);
  train.finish();
  validation.finish();

  const std::string from = options.inputs.empty() ? "no inputs" : options.inputs.front();
  if (summary.train.tokens == 0)
    throw DataError(text(from, ": no document is left for training (", summary.skipped, " skipped, ", summary.validation.documents,
                         " held out)"));
  if (summary.validation.tokens == 0 && (options.validation_fraction > 0 || !options.validation_inputs.empty()))
    throw DataError(text(from, ": none of ", summary.train.documents, " documents is held out for validation: hold out a larger ",
                         "fraction, or name validation inputs"));
  remove_shards(options.output, splits);
  train.commit();
  validation.commit();
  return summary;
}

}  // namespace trireme
