#include "data/build/split_writer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/documents/chat_template.h"
#include "data/shard/shard.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr ptrdiff_t kSyncsAtOnce = 2;  // whole shards that the disk is waited for; each has a thread until then

}  // namespace

std::string shard_path(const std::string& directory, const std::string& split, int64_t number) {
  const std::string digits = std::to_string(number);
  return directory + "/" + split + "-" + std::string(5 - std::min<size_t>(digits.size(), 5), '0') + digits + ".h5";
}

SplitSummary summary_of(const std::string& directory, const SplitState& state) {
  SplitSummary summary = state.added;
  for (int64_t i = 0; i < state.shards; ++i) summary.shards.push_back(shard_path(directory, state.split, i));
  return summary;
}

SplitWriter::SplitWriter(SplitOptions options, const Tokenizer& tokenizer, SplitSummary& summary)
    : directory_(std::move(options.directory)),
      split_(std::move(options.split)),
      tokenizer_(tokenizer),
      tokens_per_shard_(options.tokens_per_shard),
      row_(options.row),
      chat_template_(std::move(options.chat_template)),
      summary_(summary) {
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token)
    bytes_of_.push_back(static_cast<uint32_t>(tokenizer.bytes_of(token).size()));
}

void SplitWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> trained, bool starts, bool ends,
                      const DocumentSource& source) {
  if (starts) begin_document(source);
  push(tokens, trained.empty() ? trained : trained.first(tokens.size()));
  if (!ends) return;
  const int32_t end = tokenizer_.end_of_document();
  push({&end, 1}, trained.empty() ? trained : trained.last(1));
  if (std::ssize(stream_.tokens) >= tokens_per_shard_) write();
}

void SplitWriter::begin_document(const DocumentSource& source) {
  ++summary_.documents;
  of_document_ = 0;
  provenance_.add(source_ = source);
  text_starts_ = true;
  stream_.starts.push_back(std::ssize(stream_.tokens));
}

// A shard that begins within a document.
void SplitWriter::begin_shard() {
  provenance_.add(source_);
  if (row_ > 0) stream_.starts.push_back(0);  // with a piece of it
}

// Tokens that the shard has room for; of packed documents up to the end of a piece of the one that is being added.
int64_t SplitWriter::room() const {
  const int64_t here = std::ssize(stream_.tokens);
  if (row_ == 0) return tokens_per_shard_ - here;
  const int64_t least = std::max(tokens_per_shard_, here + 1) - stream_.starts.back();
  return stream_.starts.back() + (least + row_ - 1) / row_ * row_ - here;
}

void SplitWriter::push(std::span<const int32_t> tokens, std::span<const uint8_t> trained) {
  while (!tokens.empty()) {
    if (stream_.tokens.empty() && stream_.starts.empty()) begin_shard();
    const auto space = static_cast<size_t>(room());
    const size_t now = std::min(space, tokens.size());
    append(tokens.first(now), trained.empty() ? trained : trained.first(now));
    tokens = tokens.subspan(now);
    if (!trained.empty()) trained = trained.subspan(now);
    if (now == space) write();
  }
}

void SplitWriter::append(std::span<const int32_t> tokens, std::span<const uint8_t> trained) {
  if (!trained.empty() || !stream_.trained.empty()) {
    stream_.trained.resize(stream_.tokens.size(), 1);
    stream_.trained.insert(stream_.trained.end(), trained.begin(), trained.end());
    stream_.trained.resize(stream_.tokens.size() + tokens.size(), 1);
  }
  stream_.tokens.insert(stream_.tokens.end(), tokens.begin(), tokens.end());
  size_t i = 0;
  for (; text_starts_ && i < tokens.size(); ++i) text_bytes_ += std::ssize(tokenizer_.bytes_at_start(tokens[i], text_starts_));
  for (; i < tokens.size(); ++i) text_bytes_ += bytes_of_[static_cast<size_t>(tokens[i])];
  summary_.tokens += std::ssize(tokens);
  const bool fitted = of_document_ <= row_;
  of_document_ += std::ssize(tokens);
  if (row_ > 0 && fitted && of_document_ > row_) ++summary_.cut_documents;
}

void SplitWriter::finish() {
  if (!stream_.tokens.empty()) write();
  wait_for_disk();
}

void SplitWriter::pack_stream() {
  const int64_t before = std::ssize(stream_.tokens);
  auto [packed, documents] = pack(stream_, row_, tokenizer_.end_of_document());
  stream_ = std::move(packed);
  provenance_.choose(documents);
  summary_.rows += std::ssize(stream_.tokens) / row_;
  summary_.filling += std::ssize(stream_.tokens) - before;
  summary_.tokens += std::ssize(stream_.tokens) - before;
}

int64_t SplitWriter::trained_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < stream_.trained.size(); ++i)
    if (stream_.trained[i] != 0) bytes += bytes_of_[static_cast<size_t>(stream_.tokens[i])];
  for (const int64_t start : stream_.starts) {
    const auto i = static_cast<size_t>(start);
    bool starts = true;
    if (!stream_.trained.empty() && stream_.trained[i] != 0)
      bytes += std::ssize(tokenizer_.bytes_at_start(stream_.tokens[i], starts)) - bytes_of_[static_cast<size_t>(stream_.tokens[i])];
  }
  return bytes;
}

void SplitWriter::write_stream(const std::string& path, int64_t row) const {
  std::vector<ShardDataset> more = provenance_.datasets();
  if (!chat_template_.empty()) more.push_back({kChatTemplateDataset, Hdf5Type::u8, std::as_bytes(std::span(chat_template_))});
  write_shard(path, {tokenizer_.fingerprint(), tokenizer_.vocab_size(), tokenizer_.end_of_document(), text_bytes_}, stream_.tokens,
              stream_.starts, {.trained = stream_.trained, .trained_bytes = trained_bytes(), .row = row, .more = more});
}

void SplitWriter::write() {
  // A mask that leaves nothing out is none.
  if (std::ranges::find(stream_.trained, 0) == stream_.trained.end()) stream_.trained.clear();
  if (row_ > 0) pack_stream();
  const std::string path = shard_path(directory_, split_, std::ssize(summary_.shards));
  write_stream(path + ".tmp", row_);
  // The disk is waited for beside the next shards.
  syncs_.push_back(std::async(std::launch::async, [path] { File::open_to_write(path + ".tmp").sync(); }));
  if (std::ssize(syncs_) > kSyncsAtOnce) {
    std::future<void> oldest = std::move(syncs_.front());
    syncs_.erase(syncs_.begin());
    oldest.get();
  }
  summary_.shards.push_back(path);
  summary_.text_bytes += text_bytes_;
  summary_.trained_tokens += stream_.trained.empty() ? std::ssize(stream_.tokens) : std::ranges::count(stream_.trained, 1);
  stream_.tokens.clear();  // their memory serves the next shard
  stream_.starts.clear();
  stream_.trained.clear();
  provenance_.clear();
  text_bytes_ = 0;
}

void SplitWriter::wait_for_disk() {
  for (std::future<void>& sync : syncs_) sync.get();
  syncs_.clear();
}

std::string SplitWriter::partial_path(int64_t number) const {
  return directory_ + "/" + split_ + "-partial-" + std::to_string(number) + ".h5.tmp";
}

SplitState SplitWriter::keep() {
  SplitState state{
      .split = split_, .shards = std::ssize(summary_.shards), .added = summary_, .source = source_, .tokens_of_it = of_document_};
  state.added.shards.clear();
  if (!stream_.tokens.empty()) {
    state.partial = ++kept_;
    const std::string path = partial_path(state.partial);
    write_stream(path, 0);
    File::open_to_write(path).sync();
  }
  wait_for_disk();
  return state;
}

bool SplitWriter::can_go_on_from(const SplitState& state) const {
  try {
    for (int64_t i = 0; i < state.shards; ++i) ShardReader(shard_path(directory_, split_, i) + ".tmp").check_tables();
    if (state.partial > 0) ShardReader(partial_path(state.partial)).verify();
    return true;
  } catch (const DataError&) {
    return false;
  }
}

void SplitWriter::go_on_from(const SplitState& state) {
  summary_ = summary_of(directory_, state);
  kept_ = state.partial;
  source_ = state.source;
  of_document_ = state.tokens_of_it;
  if (state.partial == 0) return;
  const ShardReader partial(partial_path(state.partial));
  stream_.tokens.resize(static_cast<size_t>(partial.tokens()));
  partial.read(0, stream_.tokens);
  stream_.starts = partial.document_starts();
  if (partial.has_loss_mask()) {
    stream_.trained.resize(stream_.tokens.size());
    partial.read_trained(0, stream_.trained);
  }
  text_bytes_ = partial.facts().text_bytes;
  const auto provenance = Provenance::read(partial);
  if (!provenance) throw DataError(partial.path() + ": does not name the sources of its documents: remove it");
  for (int64_t i = partial.first_document(); i < std::ssize(stream_.starts); ++i) provenance_.add(source_ = provenance->of(i));
}

void SplitWriter::drop(const SplitState& state) const {
  if (state.partial > 0) fs::remove(partial_path(state.partial));
}

void check_shard_tokens(int64_t tokens_per_shard, int64_t row) {
  if (tokens_per_shard < 2 || tokens_per_shard > (1ll << 32))
    throw ConfigError(text(tokens_per_shard, " tokens per shard: 2 to 4294967296"));
  if (row != 0 && (row < 2 || row > tokens_per_shard))
    throw ConfigError(text("a context of ", row, " to pack for: 2 to the tokens of a shard, ", tokens_per_shard));
}

std::vector<fs::path> shards_in(const std::string& directory, const std::vector<std::string>& splits, const std::string& suffix) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::ranges::any_of(splits, [&](const std::string& split) { return name.starts_with(split + "-"); });
    if (ours && name.ends_with(suffix)) found.push_back(entry.path());
  }
  return found;
}

void make_directory(const std::string& directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (!fs::is_directory(directory)) throw DataError(directory + ": cannot be made as a directory: " + problem.message());
}

void refuse_shards(const std::string& directory, const std::vector<std::string>& splits, bool replace) {
  if (replace) return;
  for (const fs::path& path : shards_in(directory, splits, ".h5"))
    throw DataError(path.string() + ": the output holds shards already: use them, choose another directory, or replace them");
}

void remove_unfinished(const std::string& directory, const std::vector<std::string>& splits) {
  for (const fs::path& path : shards_in(directory, splits, ".h5.tmp")) fs::remove(path);
}

}  // namespace trireme
