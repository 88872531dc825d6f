#include "checkpoint/lineage.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "checkpoint/digest.h"

namespace trireme {

namespace {

constexpr std::string_view kName = "lineage";
constexpr std::string_view kChain = ",\"chain\":\"", kEnd = "\"}\n";
constexpr size_t kAfterBody = kChain.size() + 16 + kEnd.size();
constexpr int64_t kMostBytes = int64_t{1} << 30;

// A line without its chain and closing brace.
std::string body_of_commit(const Commit& commit) {
  Json records = Json::object();
  for (const auto& [name, record] : commit.records) records[name] = {{"bytes", record.bytes}, {"digest", hex(record.value)}};
  const Json line = {{"step", commit.step},          {"save", commit.save}, {"run", commit.run},
                     {"manifest", commit.manifest},  {"time", commit.time}, {"tokens", commit.tokens},
                     {"records", std::move(records)}};
  std::string body = line.dump();
  body.pop_back();
  return body;
}

uint64_t chained(uint64_t before, std::string_view body) { return digest(hex(before) + std::string(body)); }

// The body and the chain of a line with its newline; nullopt if it has another form.
std::optional<std::pair<std::string_view, uint64_t>> parts_of(std::string_view line) {
  if (line.size() <= kAfterBody || !line.ends_with(kEnd)) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - kAfterBody), after = line.substr(body.size());
  const auto chain = from_hex(after.substr(kChain.size(), 16));
  if (!after.starts_with(kChain) || !chain) return std::nullopt;
  return std::pair(body, *chain);
}

Commit parse_commit(std::string_view body) {
  const Json line = Json::parse(std::string(body) + "}", {.depth = 4});
  Commit commit{.step = line.at("step"),
                .save = line.at("save"),
                .run = line.at("run"),
                .manifest = line.at("manifest"),
                .time = line.at("time"),
                .tokens = line.at("tokens"),
                .records = {}};
  for (const auto& [name, record] : line.at("records").members())
    commit.records[name] = {.bytes = record.at("bytes"), .value = from_hex(record.at("digest").string()).value_or(0)};
  return commit;
}

std::string whole_text(const Io& io, const std::string& path) {
  if (!path_exists(io, path)) return "";
  const IoFile file = IoFile::open_to_read(io, path);
  const int64_t bytes = file.size();
  if (bytes > kMostBytes) throw CheckpointError(text(path, " is ", bytes, " bytes, at most ", kMostBytes, " are a lineage"));
  std::string content(static_cast<size_t>(bytes), '\0');
  file.read_at(content.data(), bytes, 0);
  return content;
}

}  // namespace

std::string lineage_path(const std::string& run_directory) { return run_directory + "/lineage.jsonl"; }

// A line whose digest does not match is named, and so is one that misses a line before it.
LineageText read_lineage(const Io& io, const std::string& path) {
  LineageText found;
  found.whole = ChainedDigest::of(kName, "");
  const std::string content = whole_text(io, path);
  int64_t number = 0;
  for (size_t begin = 0, end; begin < content.size(); begin = end) {
    end = std::min(content.find('\n', begin), content.size() - 1) + 1;
    const std::string_view line = std::string_view(content).substr(begin, end - begin);
    const auto parts = parts_of(line);
    const bool matches = parts && parts->second == chained(found.whole.value, parts->first);
    ++number;
    if (!matches && end == content.size()) break;  // a write that a kill or a loss of power has torn
    if (!matches) found.problems.push_back(text(path, ":", number, " is damaged, or lines before it are missing"));
    found.whole = {.bytes = static_cast<int64_t>(end), .value = parts ? parts->second : found.whole.value};
    if (!parts) continue;
    try {
      found.commits.push_back(parse_commit(parts->first));
    } catch (const JsonError&) {
      if (matches) found.problems.push_back(text(path, ":", number, " is not a commit"));
    }
  }
  return found;
}

Lineage::Lineage(const Io& io, std::string path) : io_(io), path_(std::move(path)) {
  LineageText found = read_lineage(io_, path_);
  if (!found.commits.empty()) last_ = found.commits.back();
  for (const Commit& commit : found.commits)
    if (const auto digest = from_hex(commit.manifest)) manifests_[commit.step] = *digest;
  whole_ = found.whole;
  warnings_ = std::move(found.problems);
}

void Lineage::append(const Commit& commit) {
  const std::string body = body_of_commit(commit);
  const uint64_t chain = chained(whole_.value, body);
  const std::string line = body + std::string(kChain) + hex(chain) + std::string(kEnd);
  IoFile file = path_exists(io_, path_) ? IoFile::open_to_write(io_, path_) : IoFile::create(io_, path_);
  file.cut(whole_.bytes);
  file.write_at(line.data(), static_cast<int64_t>(line.size()), whole_.bytes);
  file.sync();
  file.close();
  if (whole_.bytes == 0) sync_directory(io_, std::filesystem::path(path_).parent_path());
  whole_ = {.bytes = whole_.bytes + static_cast<int64_t>(line.size()), .value = chain};
  last_ = commit;
}

void Lineage::append(const Manifest& manifest, uint64_t digest) {
  const auto tokens = manifest.counters.find("tokens");
  append({.step = manifest.step,
          .save = manifest.save,
          .run = manifest.run,
          .manifest = hex(digest),
          .time = utc_now(),
          .tokens = tokens == manifest.counters.end() ? 0 : tokens->second,
          .records = manifest.records});
}

std::vector<std::string> Lineage::take_warnings() { return std::exchange(warnings_, {}); }

std::string set_aside(const Io& io, const std::string& path) {
  if (!path_exists(io, path)) return "";
  const std::filesystem::path whole(path);
  for (int64_t number = 1;; ++number) {
    const std::string to =
        whole.parent_path() / (whole.stem().string() + "." + std::to_string(number) + whole.extension().string());
    if (path_exists(io, to)) continue;
    rename_path(io, path, to);
    return to;
  }
}

}  // namespace trireme
