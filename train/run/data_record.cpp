#include "train/run/data_record.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/replace_file.h"
#include "checkpoint/io.h"

namespace trireme {
namespace {

constexpr int64_t kMostBytesOfRecord = int64_t{1} << 30;

std::string record_line(const DataRecord& record, const std::string& run) {
  Json line;
  line["run"] = run;
  line["after_step"] = record.after_step;
  line["seed"] = record.seed, line["batch"] = record.batch, line["context"] = record.context;
  line["microbatch"] = record.microbatch, line["replicas"] = record.replicas;
  line["tokenizer"] = record.tokenizer, line["leave_out"] = record.leave_out, line["excluded"] = record.excluded;
  line["sources"] = Json::array();
  for (const DataRecord::Source& source : record.sources) {
    Json shards = Json::array();
    for (const auto& [path, digest] : source.shards) shards.push_back({{"path", path}, {"digest", digest}});
    line["sources"].push_back({{"weight", source.weight}, {"shards", std::move(shards)}});
  }
  return line.dump() + "\n";
}

DataRecord parse_record(const std::string& text) {
  const Json line = Json::parse(text);
  DataRecord record{.after_step = line.at("after_step"),
                    .seed = line.at("seed"),
                    .batch = line.at("batch"),
                    .context = line.at("context"),
                    .microbatch = line.at("microbatch"),
                    .replicas = line.at("replicas"),
                    .tokenizer = line.at("tokenizer"),
                    .leave_out = line.at("leave_out"),
                    .excluded = line.at("excluded"),
                    .sources = {}};
  for (const Json& source : line.at("sources")) {
    DataRecord::Source& to = record.sources.emplace_back(DataRecord::Source{.weight = source.at("weight"), .shards = {}});
    for (const Json& shard : source.at("shards")) to.shards.push_back({shard.at("path"), shard.at("digest")});
  }
  return record;
}

// Lines with their newlines.
std::vector<std::string> record_lines(const std::string& directory) {
  const std::string path = record_path(directory);
  std::vector<std::string> lines;
  if (!path_exists(Io(), path)) return lines;
  std::string all;
  try {
    const Io io;
    const IoFile file = IoFile::open_to_read(io, path);  // follows no link
    if (file.size() > kMostBytesOfRecord)
      throw DataError(text(path, ": is ", file.size(), " bytes, too large for a record of data"));
    all.resize(static_cast<size_t>(file.size()));
    file.read_at(all.data(), std::ssize(all), 0);
  } catch (const CheckpointError& problem) {
    throw DataError(problem.what());
  }
  for (size_t begin = 0, end; begin < all.size(); begin = end) {
    end = std::min(all.find('\n', begin), all.size() - 1) + 1;
    lines.push_back(all.substr(begin, end - begin));
  }
  return lines;
}

std::vector<std::string> shard_digests(const DataRecord& record) {
  std::vector<std::string> all;
  for (const DataRecord::Source& source : record.sources) {
    for (const DataRecord::Shard& shard : source.shards) all.push_back(shard.digest);
    all.emplace_back();
  }
  return all;
}

}  // namespace

std::string record_path(const std::string& directory) { return directory + "/data.jsonl"; }

std::string run_of(const std::string& directory) {
  std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  if (path.filename().string().starts_with("step-")) path = path.parent_path();
  if (path.filename() == "checkpoints") path = path.parent_path();
  return std::filesystem::exists(path / "config.yaml") ? path.string() : directory;
}

std::vector<DataRecord> recorded_data(const std::string& directory) {
  std::vector<DataRecord> records;
  for (const std::string& line : record_lines(directory)) {
    try {
      records.push_back(parse_record(line));
    } catch (const JsonError& problem) {
      throw DataError(text(record_path(directory), ":", records.size() + 1, ": is not a record of data: ", problem.what()));
    }
  }
  return records;
}

DataRecord data_record(const RunConfig& config, const Mixture& mixture, int64_t replicas, int64_t after_step) {
  DataRecord record{.after_step = after_step,
                    .seed = config.train.seed,
                    .batch = config.train.batch,
                    .context = config.model.context,
                    .microbatch = config.microbatch_rows(replicas),
                    .replicas = replicas,
                    .tokenizer = config.data.tokenizer,
                    .leave_out = {},
                    .excluded = "",
                    .sources = {}};
  for (const StepRange& range : config.train.leave_out) record.leave_out.push_back(to_text(range));
  std::vector<uint64_t> excluded;
  bool any = false;
  for (size_t i = 0; i < mixture.sources().size(); ++i) {
    const Corpus& corpus = mixture.source(i);
    DataRecord::Source source{.weight = config.data.weights.empty() ? 1 : config.data.weights[i], .shards = {}};
    for (const ShardReader& shard : corpus.shards())
      source.shards.push_back({std::filesystem::weakly_canonical(shard.path()).string(), hex(shard.digest())});
    record.sources.push_back(std::move(source));
    excluded.push_back(corpus.excluded_digest());
    any |= excluded.back() != 0;
  }
  if (any) record.excluded = hex(digest(excluded.data(), std::ssize(excluded) * 8));
  return record;
}

std::optional<DataRecord> recorded_data(const std::string& directory, int64_t step) {
  std::optional<DataRecord> found;
  for (DataRecord& record : recorded_data(directory))
    if (record.after_step < step) found = std::move(record);
  return found;
}

// Earlier lines stay as they are, to the byte.
ChainedDigest keep_record(const std::string& directory, const DataRecord& record, const std::string& run) {
  std::vector<std::string> lines;
  DataRecord before;
  for (std::string& line : record_lines(directory)) {
    DataRecord earlier = parse_record(line);
    if (earlier.after_step >= record.after_step) break;
    before = std::move(earlier);
    lines.push_back(line.ends_with('\n') ? std::move(line) : line + "\n");
  }
  before.after_step = record.after_step;
  if (lines.empty() || before != record) lines.push_back(record_line(record, run));
  ChainedDigest chain = ChainedDigest::of("data", run);
  std::string all;
  for (const std::string& line : lines) all += line, chain.add(line);
  if (!replace_file_durably(record_path(directory), all)) throw unwritable(record_path(directory));
  return chain;
}

std::string changed_record(const std::string& directory, const ChainedDigest& expected, const std::string& run) {
  if (expected.bytes == 0) return "";
  ChainedDigest found = ChainedDigest::of("data", run);
  for (const std::string& line : record_lines(directory))
    if (found.bytes < expected.bytes) found.add(line);
  if (found == expected) return "";
  return record_path(directory) + (found.bytes == 0 ? " is missing or empty" : " is not what the checkpoint was saved with");
}

ChainedDigest shards_of(std::span<const Corpus> sources) {
  ChainedDigest all = ChainedDigest::of("corpus", "");
  for (const Corpus& source : sources) {
    for (const ShardReader& shard : source.shards()) {
      const int64_t bytes = all.bytes + shard.file_bytes();
      all.add(hex(shard.digest()));
      all.bytes = bytes;
    }
    all.value = digest(hex(all.value));  // the end of a source
  }
  return all;
}

std::vector<std::string> compare_data(const std::string& directory, int64_t step, const DataRecord& now, bool allow) {
  std::vector<std::string> told;
  const std::optional<DataRecord> before = recorded_data(directory, step);
  if (!before) return told;
  if (shard_digests(*before) != shard_digests(now))
    told.emplace_back("data.train: its shards are not those that the checkpoint was trained on");
  if (before->excluded != now.excluded)
    told.emplace_back("data.exclude: leaves out other documents than the checkpoint's" +
                      std::string(before->excluded.empty() ? ", which left out none" : ""));
  if (told.empty() || allow) return told;
  std::string all;
  for (const std::string& line : told) all += line + "\n";
  throw ConfigError(all + "take these back, choose another train.name for a new run, or continue with --resume-allow");
}

std::vector<Corpus> open_recorded(const DataRecord& record) {
  std::vector<Corpus> sources;
  for (const DataRecord::Source& source : record.sources) {
    std::vector<std::string> paths;
    for (const DataRecord::Shard& shard : source.shards) paths.push_back(shard.path);
    sources.emplace_back(paths, record.context, false);
    for (size_t i = 0; i < source.shards.size(); ++i)
      if (hex(sources.back().shards()[i].digest()) != source.shards[i].digest)
        throw DataError(source.shards[i].path + ": is not what the run has read: its digest is " +
                        hex(sources.back().shards()[i].digest()) + ", not " + source.shards[i].digest);
  }
  return sources;
}

}  // namespace trireme
