#include "data/split_writer.h"

#include <algorithm>
#include <filesystem>

#include "data/shard.h"
#include "kernels/check.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

// Of these splits, finished or not.
std::vector<fs::path> shards_in(const std::string& directory, const std::vector<std::string>& splits) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::ranges::any_of(splits, [&](const std::string& split) { return name.starts_with(split + "-"); });
    if (ours && (name.ends_with(".h5") || name.ends_with(".h5.tmp"))) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

SplitWriter::SplitWriter(std::string directory, std::string split, const Tokenizer& tokenizer, int64_t tokens_per_shard,
                         SplitSummary& summary)
    : directory_(std::move(directory)),
      split_(std::move(split)),
      tokenizer_(tokenizer),
      tokens_per_shard_(tokens_per_shard),
      summary_(summary) {}

void SplitWriter::add(const std::vector<int32_t>& tokens, bool starts, bool ends) {
  if (starts) begin_document();
  for (const int32_t token : tokens) push(token);
  if (ends) push(tokenizer_.end_of_document());
}

void SplitWriter::begin_document() {
  ++summary_.documents;
  starts_.push_back(static_cast<int64_t>(stream_.size()));
}

void SplitWriter::push(int32_t token) {
  stream_.push_back(token);
  ++summary_.tokens;
  text_bytes_ += static_cast<int64_t>(tokenizer_.bytes_of(token).size());
  if (static_cast<int64_t>(stream_.size()) >= tokens_per_shard_) write();
}

void SplitWriter::finish() {
  if (!stream_.empty()) write();
}

void SplitWriter::commit() {
  for (const std::string& path : summary_.shards) commit_file(path + ".tmp", path);
}

void SplitWriter::write() {
  const std::string number = std::to_string(summary_.shards.size());
  const std::string path =
      directory_ + "/" + split_ + "-" + std::string(5 - std::min<size_t>(number.size(), 5), '0') + number + ".h5";
  write_shard(path + ".tmp", {tokenizer_.fingerprint(), tokenizer_.vocab_size(), tokenizer_.end_of_document(), text_bytes_},
              stream_, starts_);
  summary_.shards.push_back(path);
  summary_.text_bytes += text_bytes_;
  stream_.clear();
  starts_.clear();
  text_bytes_ = 0;
}

void check_shard_tokens(int64_t tokens_per_shard) {
  if (tokens_per_shard < 2 || tokens_per_shard > (1ll << 32))
    throw ConfigError(text(tokens_per_shard, " tokens per shard: 2 to 4294967296"));
}

void make_room_for_shards(const std::string& directory, const std::vector<std::string>& splits, bool replace) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (!fs::is_directory(directory)) throw DataError(directory + ": cannot be made as a directory: " + problem.message());
  for (const fs::path& path : shards_in(directory, splits))
    if (path.extension() == ".h5" && !replace)
      throw DataError(path.string() + ": the output holds shards already: choose another directory, or replace them");
  for (const fs::path& path : shards_in(directory, splits))
    if (path.extension() == ".tmp") fs::remove(path);
}

void remove_shards(const std::string& directory, const std::vector<std::string>& splits) {
  for (const fs::path& path : shards_in(directory, splits))
    if (path.extension() == ".h5") fs::remove(path);
}

}  // namespace trireme
