#include "data/build.h"

#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>

#include "kernels/check.h"
#include "kernels/philox.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
constexpr int64_t kBatch = 16 << 20;  // bytes of text encoded together

// Gathers one split's stream and writes it shard by shard, under temporary names.
class SplitWriter {
 public:
  SplitWriter(const BuildOptions& options, const Tokenizer& tokenizer, std::string name, SplitSummary& summary)
      : options_(options), tokenizer_(tokenizer), name_(std::move(name)), summary_(summary) {}

  void add(const std::vector<int32_t>& tokens, bool starts, bool ends) {
    if (starts) {
      ++summary_.documents;
      starts_.push_back(static_cast<int64_t>(stream_.size()));
    }
    for (const int32_t token : tokens) push(token);
    if (ends) push(tokenizer_.end_of_document());
  }
  void finish() {
    if (!stream_.empty()) write();
  }
  void commit() {
    for (const std::string& path : summary_.shards) commit_file(path + ".tmp", path);
  }

 private:
  void push(int32_t token) {
    stream_.push_back(token);
    ++summary_.tokens;
    text_bytes_ += static_cast<int64_t>(tokenizer_.bytes_of(token).size());
    if (static_cast<int64_t>(stream_.size()) >= options_.tokens_per_shard) write();
  }
  void write() {
    const std::string number = std::to_string(summary_.shards.size());
    const std::string path =
        options_.output + "/" + name_ + "-" + std::string(5 - std::min<size_t>(number.size(), 5), '0') + number + ".h5";
    write_shard(path + ".tmp", {tokenizer_.fingerprint(), tokenizer_.vocab_size(), tokenizer_.end_of_document(), text_bytes_},
                stream_, starts_);
    summary_.shards.push_back(path);
    summary_.text_bytes += text_bytes_;
    stream_.clear();
    starts_.clear();
    text_bytes_ = 0;
  }

  const BuildOptions& options_;
  const Tokenizer& tokenizer_;
  const std::string name_;
  SplitSummary& summary_;
  std::vector<int32_t> stream_;
  std::vector<int64_t> starts_;
  int64_t text_bytes_ = 0;
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

// Files of earlier builds, finished or not.
std::vector<fs::path> earlier_shards(const std::string& directory) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("train-") || name.starts_with("validation-");
    if (ours && (name.ends_with(".h5") || name.ends_with(".h5.tmp"))) found.push_back(entry.path());
  }
  return found;
}

std::vector<std::string> without(std::vector<std::string> files, const std::vector<std::string>& others) {
  std::set<fs::path> same;
  for (const std::string& file : others) same.insert(fs::weakly_canonical(file));
  std::erase_if(files, [&](const std::string& file) { return same.contains(fs::weakly_canonical(file)); });
  return files;
}

void prepare(const BuildOptions& options) {
  std::error_code problem;
  fs::create_directories(options.output, problem);
  if (!fs::is_directory(options.output)) throw DataError(options.output + ": cannot be made as a directory: " + problem.message());
  for (const fs::path& path : earlier_shards(options.output)) {
    if (path.extension() == ".h5" && !options.replace)
      throw DataError(path.string() + ": the output holds shards already: choose another directory, or replace them");
  }
  for (const fs::path& path : earlier_shards(options.output))
    if (path.extension() == ".tmp") fs::remove(path);
}

void check(const BuildOptions& options) {
  if (options.validation_fraction < 0 || options.validation_fraction >= 1)
    throw ConfigError(text("validation fraction ", options.validation_fraction, ": at least 0 and below 1"));
  if (options.validation_fraction > 0 && !options.validation_inputs.empty())
    throw ConfigError("validation inputs and a validation fraction are two ways to say one thing: give one");
  if (options.tokens_per_shard < 2 || options.tokens_per_shard > (1ll << 32))
    throw ConfigError(text(options.tokens_per_shard, " tokens per shard: 2 to 4294967296"));
}

}  // namespace

BuildSummary build_shards(const BuildOptions& options, const Tokenizer& tokenizer,
                          const std::function<void(const BuildProgress&)>& progress) {
  check(options);
  prepare(options);
  BuildSummary summary;
  SplitWriter train(options, tokenizer, "train", summary.train), validation(options, tokenizer, "validation", summary.validation);
  // Reads `files` to the end; what is not held out goes to `others`.
  const auto read = [&](const std::vector<std::string>& files, double fraction, SplitWriter& others) {
    Documents documents(files, options.documents);
    bool held = false;
    for (auto batch = documents.next(kBatch); !batch.empty(); batch = documents.next(kBatch)) {
      const auto tokens = encode_all(batch, tokenizer);
      for (size_t i = 0; i < batch.size(); ++i) {
        if (batch[i].starts) held = held_out(batch[i], fraction);
        (held ? validation : others).add(tokens[i], batch[i].starts, batch[i].ends);
      }
      progress({documents.bytes_read(), documents.bytes_total(), summary.train.documents + summary.validation.documents,
                summary.train.tokens + summary.validation.tokens});
    }
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
  for (const fs::path& path : earlier_shards(options.output))
    if (path.extension() == ".h5") fs::remove(path);
  train.commit();
  validation.commit();
  return summary;
}

std::vector<ShardInfo> describe_shards(const std::vector<std::string>& paths) {
  std::vector<ShardInfo> infos;
  for (const std::string& path : list_files(paths, ".h5")) {
    const ShardReader shard(path);
    infos.push_back(
        {path, shard.file_bytes(), shard.tokens(), static_cast<int64_t>(shard.document_starts().size()), shard.facts()});
  }
  return infos;
}

std::vector<ShardVerdict> verify_shards(const std::vector<std::string>& paths) {
  std::vector<ShardVerdict> verdicts;
  for (const std::string& path : list_files(paths, ".h5")) {
    try {
      ShardReader(path).verify();
      verdicts.push_back({path, ""});
    } catch (const DataError& problem) {
      verdicts.push_back({path, problem.what()});
    }
  }
  return verdicts;
}

}  // namespace trireme
