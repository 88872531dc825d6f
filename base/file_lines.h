// FileLines: the lines of a regular file, read one after the other within bounded memory.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace trireme {

class FileLines {
 public:
  // DataError if it cannot be opened. `longest`: bytes of one line; a longer one is a DataError.
  explicit FileLines(const std::string& path, int64_t longest = 16 << 20);

  // The next line without its newline; false at the end. The last line may lack a newline.
  bool next(std::string& line);
  int64_t number() const { return number_; }  // of the line read last, from 1

 private:
  File file_;
  int64_t longest_, number_ = 0;
  std::string part_;
  size_t at_ = 0;
};

}  // namespace trireme
