#include "data/shard/shard_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include "base/error.h"

namespace trireme {

namespace {

constexpr rlim_t kMostOpen = 512, kLeastOpen = 16;

// Half of the files that the process may open.
size_t most_open() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeastOpen;
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

  // Opens its file, unless it is, and counts a user.
  void use(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    if (!shard.file_) {
      File file = File::open_to_read(shard.path());
      if (!shard.identity_) {
        shard.check_(file);
        shard.identity_ = ShardFile::identity_of(file);
      }
      if (ShardFile::identity_of(file) != *shard.identity_)
        throw DataError(shard.path() + ": is another file than the one that was opened first: it was replaced meanwhile");
      keep(shard, std::move(file));
    }
    ++shard.users_;
  }
  void release(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    --shard.users_;
  }
  void add(const ShardFile& shard, File file) {
    const std::lock_guard lock(mutex_);
    keep(shard, std::move(file));
  }
  void remove(const ShardFile& shard) {
    const std::lock_guard lock(mutex_);
    if (const auto found = std::ranges::find(open_, &shard); found != open_.end()) open_.erase(found);
  }

 private:
  // Closes the oldest of those that nobody uses, if there are too many.
  void keep(const ShardFile& shard, File file) {
    if (open_.size() >= most_) {
      const auto idle = std::ranges::find_if(open_, [](const ShardFile* each) { return each->users_ == 0; });
      if (idle != open_.end()) (*idle)->file_.reset(), open_.erase(idle);
    }
    open_.push_back(&shard);
    shard.file_.emplace(std::move(file));
  }

  const size_t most_ = most_open();
  std::mutex mutex_;
  std::deque<const ShardFile*> open_;
};

ShardFile::ShardFile(const std::string& path) : path_(path) {
  File file = File::open_to_read(path);
  identity_ = identity_of(file);
  OpenFiles::one().add(*this, std::move(file));
}

ShardFile::ShardFile(const std::string& path, std::function<void(const File&)> check) : path_(path), check_(std::move(check)) {}

ShardFile::~ShardFile() { OpenFiles::one().remove(*this); }

ShardFile::Use ShardFile::open() const {
  OpenFiles::one().use(*this);
  return Use(*this);
}

void ShardFile::release() const { OpenFiles::one().release(*this); }

ShardFile::Identity ShardFile::identity_of(const File& file) {
  struct stat found {};
  if (fstat(file.descriptor(), &found) != 0) throw DataError(file.path() + ": cannot be examined");
  return {.device = found.st_dev, .inode = found.st_ino, .size = found.st_size};
}

}  // namespace trireme
