#include "data/shard/shard_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <deque>

#include "base/digest.h"
#include "base/error.h"
#include "data/shard/shard_header.h"

namespace trireme {

namespace {

constexpr rlim_t kMostOpen = 32768, kLeastOpen = 16;

// Half of the files that the process may open, once it may open as many as the system lets it.
size_t most_open() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeastOpen;
  if (const rlim_t wanted = std::min(limit.rlim_max, 2 * kMostOpen); limit.rlim_cur < wanted) {
    const rlim_t before = std::exchange(limit.rlim_cur, wanted);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  return std::clamp<rlim_t>(limit.rlim_cur / 2, kLeastOpen, kMostOpen);
}

}  // namespace

// All shards whose files are open, in the order in which they were opened.
class OpenFiles {
 public:
  static OpenFiles& one() {
    static OpenFiles files;
    return files;
  }

  // Counts a user of an open file; false if it is not open.
  bool use(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    if (!shard.file_) return false;
    ++shard.users_;
    return true;
  }
  void release(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    --shard.users_;
  }
  // With so many users. Closes the oldest of those that nobody uses, if there are too many.
  void add(const ShardFile& shard, File file, int users) {
    const std::lock_guard lock(mutex_);
    if (open_.size() >= most_) {
      const auto idle = std::ranges::find_if(open_, [](const ShardFile* each) { return each->users_ == 0; });
      if (idle != open_.end()) (*idle)->file_.reset(), open_.erase(idle);
    }
    open_.push_back(&shard);
    shard.file_.emplace(std::move(file));
    shard.users_ = users;
  }
  void remove(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    if (const auto found = std::ranges::find(open_, &shard); found != open_.end()) open_.erase(found);
  }

 private:
  const size_t most_ = most_open();
  std::mutex mutex_;
  std::deque<const ShardFile*> open_;
};

ShardFile::ShardFile(const std::string& path) : path_(path) {
  File file = File::open_to_read(path);
  identity_ = identity_of(file);
  OpenFiles::one().add(*this, std::move(file), 0);
}

ShardFile::ShardFile(const std::string& path, Identity wanted) : path_(path), identity_(wanted) {}

ShardFile::~ShardFile() { OpenFiles::one().remove(*this); }

// Others continue while the file system takes its time to open one.
ShardFile::Use ShardFile::open() const {
  if (OpenFiles::one().use(*this)) return Use(*this);
  const std::lock_guard lock(opening_);
  if (OpenFiles::one().use(*this)) return Use(*this);
  File file = File::open_to_read(path_);
  if (identity_of(file) != identity_)
    throw DataError(
        path_ + ": is another file than the one that was opened first, by this rank or by rank 0: its size or its header differs");
  OpenFiles::one().add(*this, std::move(file), 1);
  return Use(*this);
}

void ShardFile::release() const { OpenFiles::one().release(*this); }

std::string ShardFile::header_of(const File& file) {
  std::string block(static_cast<size_t>(std::min(file.size(), kShardUserBlock)), '\0');
  file.read_at(block.data(), std::ssize(block), 0);
  block.resize(block.find_last_not_of('\0') + 1);
  return block;
}

ShardFile::Identity ShardFile::identity_of(const File& file) { return {.bytes = file.size(), .header = digest(header_of(file))}; }

}  // namespace trireme
