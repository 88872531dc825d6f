#include "data/build/build.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "data/build/build_journal.h"
#include "data/build/encode_pipeline.h"
#include "data/documents/list_files.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> without(std::vector<std::string> files, const std::vector<std::string>& others) {
  std::set<fs::path> same;
  for (const std::string& file : others) same.insert(fs::weakly_canonical(file));
  std::erase_if(files, [&](const std::string& file) { return same.contains(fs::weakly_canonical(file)); });
  return files;
}

// Made by this build or an earlier one.
bool is_shard_of(const std::string& file, const std::string& output) {
  const std::string name = fs::path(file).filename().string();
  const bool named = name.starts_with("train-") || name.starts_with("validation-");
  return named && (name.ends_with(".h5") || name.ends_with(".h5.tmp")) &&
         fs::weakly_canonical(file).parent_path() == fs::weakly_canonical(output);
}

void check(const BuildOptions& options) {
  if (options.validation_fraction < 0 || options.validation_fraction >= 1)
    throw ConfigError(text("validation fraction ", options.validation_fraction, ": at least 0 and below 1"));
  if (options.validation_fraction > 0 && !options.validation_inputs.empty())
    throw ConfigError("validation inputs and a validation fraction are two ways to say one thing: give one");
  check_shard_tokens(options.tokens_per_shard, options.pack_context);
  if (const std::string name = template_of(options.documents); !name.empty()) ChatTemplate{name};
}

// Digest of all that the shards depend on; empty for standard input, which cannot be read again.
std::string key_of(const BuildOptions& options, const std::vector<std::vector<std::string>>& lists, const Tokenizer& tokenizer) {
  std::string all = text("1\n", tokenizer.fingerprint(), "\n", std::bit_cast<uint64_t>(options.validation_fraction), "\n",
                         options.tokens_per_shard, "\n", options.documents.field, "\n", options.documents.prompt, "\n",
                         options.documents.response, "\n", options.documents.messages, "\n", options.documents.input, "\n",
                         template_of(options.documents), "\n", options.pack_context, "\n");
  for (const std::vector<std::string>& list : lists) {
    for (const std::string& file : list) {
      if (file == kStandardInput) return {};
      std::error_code unreadable;  // reported when the file's turn comes
      all += text(file, "\n", fs::file_size(file, unreadable), "\n",
                  fs::last_write_time(file, unreadable).time_since_epoch().count(), "\n");
    }
    all += "\n";
  }
  return text(digest(all));
}

SplitOptions split_of(const BuildOptions& options, const char* split) {
  return {.directory = options.output,
          .split = split,
          .tokens_per_shard = options.tokens_per_shard,
          .row = options.pack_context,
          .chat_template = template_of(options.documents)};
}

// One pass over the inputs.
class Build {
 public:
  Build(const BuildOptions& options, const Tokenizer& tokenizer, const std::function<void(const BuildProgress&)>& progress,
        ReadBatches& read)
      : options_(options),
        tokenizer_(tokenizer),
        progress_(progress),
        read_(read),
        train_(split_of(options, "train"), tokenizer, summary_.train),
        validation_(split_of(options, "validation"), tokenizer, summary_.validation) {
    const auto validation = list_files(options.validation_inputs);
    lists_ = {without(list_files(options.inputs), validation), validation};
    for (auto& list : lists_)  // the output may lie among the inputs
      std::erase_if(list, [&](const std::string& file) { return is_shard_of(file, options.output); });
    journal_.key = key_of(options, lists_, tokenizer);
  }

  // Documents are held out below this hash. nullopt: another pass with below() makes the shards.
  std::optional<BuildSummary> make(double below, const std::function<void()>& resumed) {
    journal_.hold_out.below = below;
    const std::vector<std::string> splits{"train", "validation"};
    const auto ours = [&](const std::optional<BuildJournal>& other) {
      const bool lost_none = other && other->problems.count == 0;
      return other && !journal_.key.empty() && other->key == journal_.key && (options_.documents.skip_bad || lost_none);
    };
    make_directory(options_.output);
    const DirectoryLock lock(options_.output);
    if (const auto whole = finish_renaming(options_.output); ours(whole)) {
      summary_.train = summary_of(options_.output, whole->splits.at(0));
      summary_.validation = summary_of(options_.output, whole->splits.at(1));
      journal_.problems = whole->problems;
      return summary();
    }
    refuse_shards(options_.output, splits, options_.replace);
    if (const auto begun = BuildJournal::load(options_.output);
        ours(begun) && train_.can_go_on_from(begun->splits.at(0)) && validation_.can_go_on_from(begun->splits.at(1))) {
      take_over(*begun);
      if (resumed) resumed();
    } else {
      BuildJournal::remove(options_.output);
      remove_unfinished(options_.output, splits);
    }
    try {
      for (; journal_.list < std::ssize(lists_); ++journal_.list, journal_.at = {}) read_list();
      train_.finish();
      validation_.finish();
    } catch (...) {
      if (!can_resume()) remove_unfinished(options_.output, splits);
      throw;
    }
    const std::string problem = problem_of_splits();
    if (problem.empty() && !other_limit()) {
      journal_.splits = {train_.keep(), validation_.keep()};
      journal_.commit(options_.output);
      return summary();
    }
    BuildJournal::remove(options_.output);
    remove_unfinished(options_.output, splits);
    if (!problem.empty()) throw DataError(problem);
    journal_.hold_out.below = *other_limit();
    return std::nullopt;
  }
  double below() const { return journal_.hold_out.below; }

 private:
  // The journal names what is on disk, and the same build continues from there.
  bool can_resume() const { return !journal_.splits.empty(); }

  void take_over(const BuildJournal& other) {
    journal_ = other;
    train_.go_on_from(other.splits.at(0));
    validation_.go_on_from(other.splits.at(1));
  }

  bool is_piped() const { return journal_.key.empty(); }

  std::optional<double> other_limit() const {
    if (options_.validation_fraction == 0 || (is_piped() && !read_.whole)) return std::nullopt;
    return journal_.hold_out.other_limit(summary_.train.documents, summary_.validation.documents);
  }

  void read_list() {
    if (second_pass_) {
      for (const EncodedBatch& batch : std::exchange(read_.batches, {})) take(batch);
      return;
    }
    DocumentOptions how = options_.documents;
    how.tokenizer = &tokenizer_;
    Documents documents(lists_[static_cast<size_t>(journal_.list)], how);
    documents.go_on_from(journal_.at);
    const auto take_and_keep = [&](const EncodedBatch& batch) {
      take(batch);
      const bool both = summary_.train.documents > 0 && summary_.validation.documents > 0;
      if (is_piped() && options_.validation_fraction > 0) both ? read_.drop() : read_.keep(batch);
      journal_.at = batch.end;
      if (!is_piped() && seconds_since(kept_) >= options_.keep_every) keep();
      progress_({batch.bytes_read, documents.bytes_total(), summary_.train.documents + summary_.validation.documents,
                 summary_.train.tokens + summary_.validation.tokens});
    };
    encode_documents(documents, tokenizer_, take_and_keep, options_.batch_bytes);
  }

  void take(const EncodedBatch& batch) {
    for (size_t i = 0; i < batch.passages.size(); ++i) add(batch.passages[i], batch.tokens[i], batch.trained[i]);
  }

  void add(const Passage& passage, const std::vector<int32_t>& tokens, const std::vector<uint8_t>& trained) {
    if (!passage.problem.empty() && !options_.documents.skip_bad)
      throw DataError(passage.problem + " (--on-error skip leaves such documents out and continues)");
    if (!passage.problem.empty()) return journal_.problems.add(passage.problem, options_.documents);
    if (passage.text.empty()) return;
    if (passage.starts) journal_.held_out = journal_.list == 1 || journal_.hold_out.choose(passage);
    (journal_.held_out ? validation_ : train_).add(tokens, trained, passage.starts, passage.ends, passage.source);
  }

  // Saves the state from which the same build continues. A failure leaves the state before in the journal, with its files.
  void keep() {
    std::vector<SplitState> splits{train_.keep(), validation_.keep()};
    splits.swap(journal_.splits);
    journal_.save(options_.output);
    if (!splits.empty()) train_.drop(splits[0]), validation_.drop(splits[1]);
    kept_ = Clock::now();
  }

  // Empty if both splits have what was asked for, or can have it by another limit.
  std::string problem_of_splits() const {
    const std::string from = options_.inputs.empty() ? "no inputs" : options_.inputs.front();
    const int64_t trained = summary_.train.documents, held_out = summary_.validation.documents;
    if (other_limit() || (trained > 0 && (held_out > 0 || !asks_for_validation()))) return {};
    if (options_.validation_fraction > 0 && trained + held_out > 0) return journal_.hold_out.problem(from, trained + held_out);
    if (trained == 0)
      return text(from, ": no document is left for training (", journal_.problems.count, " skipped, ", held_out, " held out)");
    return options_.validation_inputs.front() + ": no document is left for validation";
  }
  bool asks_for_validation() const { return options_.validation_fraction > 0 || !options_.validation_inputs.empty(); }

  BuildSummary summary() {
    summary_.skipped = journal_.problems.count;
    summary_.problems = journal_.problems.first;
    return std::move(summary_);
  }

  const BuildOptions& options_;
  const Tokenizer& tokenizer_;
  const std::function<void(const BuildProgress&)>& progress_;
  ReadBatches& read_;
  const bool second_pass_ = !read_.batches.empty();
  BuildSummary summary_;
  SplitWriter train_, validation_;
  std::vector<std::vector<std::string>> lists_;
  BuildJournal journal_;
  Clock::time_point kept_ = Clock::now();
};

}  // namespace

BuildSummary build_shards(const BuildOptions& options, const Tokenizer& tokenizer,
                          const std::function<void(const BuildProgress&)>& progress, const std::function<void()>& resumed) {
  check(options);
  ReadBatches read;
  for (double below = options.validation_fraction;;) {
    Build build(options, tokenizer, progress, read);
    if (std::optional<BuildSummary> summary = build.make(below, resumed)) return std::move(*summary);
    below = build.below();
  }
}

}  // namespace trireme
