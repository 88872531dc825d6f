#include "data/build/build_journal.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/shard/shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

std::string making(const std::string& directory) { return directory + "/.build.json"; }
std::string renaming(const std::string& directory) { return directory + "/" + kRenamingNote; }

Json to_json(const BuildJournal& journal) {
  Json splits = Json::array();
  for (const SplitState& s : journal.splits)
    splits.push_back({{"split", s.split},
                      {"shards", s.shards},
                      {"partial", s.partial},
                      {"documents", s.added.documents},
                      {"text_bytes", s.added.text_bytes},
                      {"tokens", s.added.tokens},
                      {"trained_tokens", s.added.trained_tokens},
                      {"rows", s.added.rows},
                      {"filling", s.added.filling},
                      {"cut_documents", s.added.cut_documents},
                      {"file", s.source.file},
                      {"offset", s.source.offset},
                      {"line", s.source.line},
                      {"tokens_of_it", s.tokens_of_it}});
  return {{"key", journal.key},
          {"parts", journal.parts},
          {"splits", splits},
          {"list", journal.list},
          {"file", journal.at.file},
          {"passages", journal.at.passages},
          {"held_out", journal.held_out},
          {"broken", journal.broken},
          {"held_out_below", journal.hold_out.below},
          {"lowest_hash", journal.hold_out.lowest},
          {"highest_hash", journal.hold_out.highest},
          {"problems", journal.problems.count},
          {"first_problems", journal.problems.first}};
}

std::optional<BuildJournal> read_journal(const std::string& path) {
  if (std::error_code problem; !fs::exists(path, problem)) return std::nullopt;
  try {
    const Json json = Json::parse(read_file(path, 64 << 20, "a journal"));
    BuildJournal journal{
        .key = json.at("key"),
        .list = json.at("list"),
        .at = {.file = json.at("file"), .passages = json.at("passages")},
        .held_out = json.at("held_out"),
        .hold_out = {.below = json.at("held_out_below"), .lowest = json.at("lowest_hash"), .highest = json.at("highest_hash")},
        .problems = {.count = json.at("problems"), .first = json.at("first_problems")}};
    if (const Json* const parts = json.find("parts")) journal.parts = parts->get<std::vector<std::string>>();
    journal.broken = json.value_or_null("broken") == true;  // older versions have neither
    std::error_code unknown;
    journal.saved = fs::last_write_time(path, unknown);
    const Json& splits = json.at("splits");
    for (const Json& s : splits)
      journal.splits.push_back({.split = s.at("split"),
                                .shards = s.at("shards"),
                                .partial = s.at("partial"),
                                .added = {.shards = {},
                                          .documents = s.at("documents"),
                                          .text_bytes = s.at("text_bytes"),
                                          .tokens = s.at("tokens"),
                                          .trained_tokens = s.at("trained_tokens"),
                                          .rows = s.at("rows"),
                                          .filling = s.at("filling"),
                                          .cut_documents = s.at("cut_documents")},
                                .source = {.file = s.at("file"), .offset = s.at("offset"), .line = s.at("line")},
                                .tokens_of_it = s.at("tokens_of_it")});
    return journal;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

void write_journal(const BuildJournal& journal, const std::string& path) {
  std::string lines = to_json(journal).dump({.indent = 1}) + "\n";
  File file = File::create(path + ".tmp");
  file.write_at(lines.data(), std::ssize(lines), 0);
  file.sync();
  commit_file(path + ".tmp", path);
}

void rename_all(const BuildJournal& journal, const std::string& directory) {
  for (const SplitState& split : journal.splits) {
    std::set<fs::path> shards;
    for (int64_t i = 0; i < split.shards; ++i) {
      const std::string path = shard_path(directory, split.split, i);
      if (fs::exists(path + ".tmp")) fs::rename(path + ".tmp", path);
      shards.insert(path);
    }
    for (const fs::path& old : shards_in(directory, {split.split}, ".h5"))
      if (!shards.contains(old)) fs::remove(old);
    remove_unfinished(directory, {split.split});  // states that are not gone on from any more
  }
  fs::remove(making(directory));  // of the same build, where it was killed between the two
  sync_directory(directory);
  fs::remove(renaming(directory));
  sync_directory(directory);
}

}  // namespace

void BuildJournal::save(const std::string& directory) const { write_journal(*this, making(directory)); }

std::optional<BuildJournal> BuildJournal::load(const std::string& directory) { return read_journal(making(directory)); }

void BuildJournal::commit(const std::string& directory) const {
  for (const SplitState& split : splits)
    for (int64_t i = 0; i < split.shards; ++i)
      if (const std::string path = shard_path(directory, split.split, i) + ".tmp"; !fs::exists(path))
        throw DataError(path + ": has gone since it was written: give the command again");
  write_journal(*this, renaming(directory));
  remove(directory);
  rename_all(*this, directory);
}

void BuildJournal::remove(const std::string& directory) {
  fs::remove(making(directory));
  fs::remove(making(directory) + ".tmp");
}

std::optional<BuildJournal> finish_renaming(const std::string& directory) {
  fs::remove(renaming(directory) + ".tmp");
  const std::optional<BuildJournal> journal = read_journal(renaming(directory));
  if (journal) rename_all(*journal, directory);
  return journal;
}

}  // namespace trireme
