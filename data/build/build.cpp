#include "data/build/build.h"

#include <algorithm>
#include <array>
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

// All that the shards depend on, for messages, in the order of BuildKey's parts.
constexpr std::array<const char*, 12> kKeyParts{
    "--tokenizer",     "--validation",        "--shard-tokens",      "--field",
    "--prompt-field",  "--response-field",    "--messages-field",    "--input-field",
    "--chat-template", "--pack or --context", "list of input files", "size or time of an input file"};

// Digests of all that the shards depend on, and of its parts; empty for standard input, which cannot be read again.
struct BuildKey {
  std::string all{};
  std::vector<std::string> parts{};
};

// The chat template, and with a fraction to hold out also how documents without a prompt are chosen: older versions did it
// otherwise.
std::string template_in_key(const BuildOptions& options) {
  const std::string name = template_of(options.documents);
  return name.empty() || options.validation_fraction == 0 ? name : name + ", without a prompt by all words";
}

BuildKey key_of(const BuildOptions& options, const std::vector<std::vector<std::string>>& lists, const Tokenizer& tokenizer) {
  const DocumentOptions& how = options.documents;
  std::vector<std::string> parts{tokenizer.fingerprint(),
                                 std::to_string(std::bit_cast<uint64_t>(options.validation_fraction)),
                                 std::to_string(options.tokens_per_shard),
                                 how.field,
                                 how.prompt,
                                 how.response,
                                 how.messages,
                                 how.input,
                                 template_in_key(options),
                                 std::to_string(options.pack_context)};
  std::string all = "1\n", names, files;
  for (const std::string& part : parts) all += part + "\n";
  for (const std::vector<std::string>& list : lists) {
    for (const std::string& file : list) {
      if (file == kStandardInput) return {};
      std::error_code unreadable;  // reported when the file's turn comes
      names += file + "\n";
      files += text(file, "\n", fs::file_size(file, unreadable), "\n",
                    fs::last_write_time(file, unreadable).time_since_epoch().count(), "\n");
    }
    names += "\n";
    files += "\n";
  }
  parts.push_back(std::move(names));
  parts.push_back(files);
  BuildKey key{.all = text(digest(all + files))};
  for (const std::string& part : parts) key.parts.push_back(text(digest(part)));
  return key;
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
    BuildKey key = key_of(options, lists_, tokenizer);
    journal_.key = std::move(key.all);
    journal_.parts = std::move(key.parts);
  }

  // Documents are held out below this hash. nullopt: another pass with below() makes the shards.
  std::optional<BuildSummary> make(double below, const std::function<void()>& resumed,
                                   const std::function<void(const std::string&)>& restarted) {
    journal_.hold_out.below = below;
    make_directory(options_.output);
    const DirectoryLock lock(options_.output);
    if (const auto whole = finish_renaming(options_.output); whole && difference(*whole).empty()) {
      summary_.train = summary_of(options_.output, whole->splits.at(0));
      summary_.validation = summary_of(options_.output, whole->splits.at(1));
      journal_.problems = whole->problems;
      return summary();
    }
    refuse_shards(options_.output, splits_, options_.replace);
    begin(resumed, restarted);
    try {
      for (; journal_.list < std::ssize(lists_); ++journal_.list, journal_.at = {}) read_list();
      train_.finish();
      validation_.finish();
    } catch (...) {
      if (!can_resume()) remove_unfinished(options_.output, splits_);
      throw;
    }
    const std::string problem = problem_of_splits();
    if (problem.empty() && !other_limit()) {
      journal_.splits = {train_.keep(), validation_.keep()};
      journal_.commit(options_.output);
      return summary();
    }
    remove();
    if (!problem.empty()) throw DataError(problem);
    journal_.hold_out.below = *other_limit();
    return std::nullopt;
  }
  double below() const { return journal_.hold_out.below; }

 private:
  // The journal names what is on disk, and the same build continues from there.
  bool can_resume() const { return !journal_.splits.empty(); }

  // Continues the unfinished build that is there, or removes it.
  void begin(const std::function<void()>& resumed, const std::function<void(const std::string&)>& restarted) {
    const std::optional<BuildJournal> begun = BuildJournal::load(options_.output);
    const std::string reason = begun ? obstacle(*begun) : std::string();
    if (begun && reason.empty()) {
      take_over(*begun);
      if (resumed) resumed();
      return;
    }
    if (begun && restarted)
      restarted(text(options_.output, ": the unfinished build there ", reason, ": starting again from the beginning"));
    remove();
  }

  void remove() const {
    BuildJournal::remove(options_.output);
    remove_unfinished(options_.output, splits_);
  }

  // Empty if the build of a journal makes the same shards.
  std::string difference(const BuildJournal& other) const {
    if (journal_.key.empty()) return "read files, and not standard input";
    if (other.key != journal_.key) {
      const auto [mine, its] = std::ranges::mismatch(journal_.parts, other.parts);
      const std::string newer = newer_input(other.saved);
      if (mine == journal_.parts.end() || its == other.parts.end())
        return "was begun with other inputs or settings, or by another version" + newer;
      return text("was begun with another ", kKeyParts[static_cast<size_t>(mine - journal_.parts.begin())], newer);
    }
    if (!options_.documents.skip_bad && other.problems.count > 0)
      return "has left out documents that cannot be read, and --on-error stop ends at them";
    return {};
  }

  // Names the first input that has changed since; empty: none has.
  std::string newer_input(fs::file_time_type since) const {
    for (const std::vector<std::string>& list : lists_)
      for (const std::string& file : list)
        if (std::error_code unreadable; fs::last_write_time(file, unreadable) > since && !unreadable)
          return " (" + file + " is newer than it)";
    return {};
  }

  // Empty if an unfinished build can be continued.
  std::string obstacle(const BuildJournal& begun) const {
    if (std::string other = difference(begun); !other.empty()) return other;
    const bool whole = train_.can_go_on_from(begun.splits.at(0)) && validation_.can_go_on_from(begun.splits.at(1));
    return whole ? "" : "lacks some of what it had written, or that is damaged";
  }

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
    if (!passage.problem.empty()) return leave_out(passage);
    if (passage.text.empty()) return;
    const bool starts = passage.starts || journal_.broken;
    if (starts) journal_.held_out = journal_.list == 1 || journal_.hold_out.choose(passage);
    journal_.broken = false;
    split().add(tokens, trained, starts, passage.ends, passage.source);
  }

  // A passage within a long document divides it: what stands in front of it ends there, and the rest is a document of its own.
  void leave_out(const Passage& passage) {
    if (!options_.documents.skip_bad)
      throw DataError(passage.problem + " (--on-error skip leaves such documents out and continues)");
    journal_.problems.add(passage.problem, options_.documents);
    if (!passage.starts && !journal_.broken) split().add({}, {}, false, true, passage.source);
    journal_.broken = !passage.ends;
  }

  SplitWriter& split() { return journal_.held_out ? validation_ : train_; }

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
    if (options_.validation_fraction > 0 && trained + held_out > 0)
      return journal_.hold_out.problem(from, trained + held_out, options_.documents.has_prompts());
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
  const std::vector<std::string> splits_{"train", "validation"};
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
                          const std::function<void(const BuildProgress&)>& progress, const std::function<void()>& resumed,
                          const std::function<void(const std::string&)>& restarted) {
  check(options);
  ReadBatches read;
  for (double below = options.validation_fraction;;) {
    Build build(options, tokenizer, progress, read);
    if (std::optional<BuildSummary> summary = build.make(below, resumed, restarted)) return std::move(*summary);
    below = build.below();
  }
}

}  // namespace trireme
