// FollowedFile: the lines of a file that another program appends to, or replaces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace trireme {

class FollowedFile {
 public:
  explicit FollowedFile(std::string path) : path_(std::move(path)) {}

  // Hands over the lines that have come, without their ends, for about `most`. A line without its end waits for the rest. If the
  // file was replaced or cut, calls `anew` first and begins at its first line. The file is opened each time, as a shared file
  // system needs it; one that is absent has no lines.
  void read(Clock::duration most, const std::function<void()>& anew, const std::function<void(std::string_view)>& line);

  int64_t offset() const { return offset_; }  // bytes that were handed over
  int64_t size() const { return size_; }      // at the last look
  bool more() const { return more_; }         // whole lines wait: the time was up

 private:
  std::string path_;
  std::pair<uint64_t, uint64_t> identity_{};
  int64_t offset_ = 0, size_ = 0;
  bool more_ = false;
};

}  // namespace trireme
