#include "train/telemetry/followed_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file.h"

namespace trireme {
namespace {

constexpr int64_t kReadBlock = 1 << 20, kLongestLine = 64 << 20;  // bytes

}  // namespace

void FollowedFile::read(Clock::duration most, const std::function<void()>& anew,
                        const std::function<void(std::string_view)>& line) {
  more_ = false;
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path_, unreadable)) return;
  const Clock::time_point end = Clock::now() + most;
  const File file = File::open_to_read(path_);
  struct stat facts {};
  if (fstat(file.descriptor(), &facts) != 0) return;
  const std::pair<uint64_t, uint64_t> identity{facts.st_dev, facts.st_ino};
  size_ = file.size();
  if (offset_ > 0 && (identity != identity_ || size_ < offset_)) offset_ = 0, anew();
  identity_ = identity;
  std::vector<char> block;
  int64_t length = kReadBlock;
  while (offset_ < size_) {
    if (Clock::now() >= end) {
      more_ = true;
      return;
    }
    block.resize(static_cast<size_t>(std::min(length, size_ - offset_)));
    file.read_at(block.data(), std::ssize(block), offset_);
    std::string_view rest(block.data(), block.size());
    for (size_t at; (at = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(at + 1)) line(rest.substr(0, at));
    const int64_t taken = std::ssize(block) - std::ssize(rest);
    offset_ += taken;
    if (taken > 0) continue;
    if (offset_ + std::ssize(block) == size_) return;  // the last line has no end yet
    length *= 2;
    if (length > kLongestLine) offset_ += std::ssize(block), length = kReadBlock;  // no line of ours: left out
  }
}

}  // namespace trireme
