#include "data/text/text_file.h"

#include <algorithm>

#include "base/error.h"
#include "data/text/unpacker.h"

namespace trireme {

namespace {

constexpr int64_t kPacked = 1 << 20;  // bytes read at once

}  // namespace

TextFile::TextFile(File file, std::string name, int64_t size)
    : path_(std::move(name)), file_(std::move(file)), size_(size), unpacker_(unpacker_for(path_)) {}
TextFile::TextFile(const std::string& path) : TextFile(File::open_to_read(path), path, 0) { size_ = file_.size(); }
TextFile TextFile::standard_input(const std::string& name) { return {File::standard_input(), name, -1}; }
TextFile::~TextFile() = default;
TextFile::TextFile(TextFile&&) noexcept = default;
TextFile& TextFile::operator=(TextFile&&) noexcept = default;

void TextFile::rewind() {
  position_ = 0;
  next_ = end_ = nullptr;
  ended_ = false;
  problem_.clear();
  if (unpacker_) unpacker_->reset();
}

// The file's own next bytes: `count`, or fewer at its end.
int64_t TextFile::read_file(char* into, int64_t count) {
  int64_t now = 0;
  if (size_ < 0) {
    now = file_.read(into, count);
  } else {
    now = std::min(count, size_ - position_);
    file_.read_at(into, now, position_);
  }
  position_ += now;
  return now;
}

int64_t TextFile::read(char* into, int64_t count) {
  if (!unpacker_) {
    const int64_t now = read_file(into, count);
    ended_ = size_ < 0 ? now < count : position_ == size_;
    return now;
  }
  if (!problem_.empty()) throw DataError(problem_);
  char *out = into, *const out_end = into + count;
  while (out < out_end) {
    if (next_ == end_) {
      packed_.resize(kPacked);
      next_ = packed_.data(), end_ = next_ + read_file(packed_.data(), kPacked);
    }
    const char* problem = nullptr;
    const char *const in_before = next_, *const out_before = out;
    const bool may_end = unpacker_->unpack(next_, end_, out, out_end, problem);
    const bool moved = next_ != in_before || out != out_before;
    if (problem == nullptr && moved) continue;
    if (problem != nullptr) problem_ = text(path(), ": cannot be unpacked: ", problem);
    if (problem == nullptr && !may_end) problem_ = path() + ": is cut off: what is packed in it does not end";
    if (!problem_.empty() && out == into) throw DataError(problem_);  // or the next time
    ended_ = problem_.empty();
    break;
  }
  return out - into;
}

}  // namespace trireme
