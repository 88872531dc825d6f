// Problems of one config, collected so that a user sees all of them at once.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace trireme {

class ConfigProblems {
 public:
  void add(const std::string& line) {
    if (++count_ <= kMost) lines_ += (lines_.empty() ? "" : "\n") + line;
  }
  // ConfigError with a line for each problem, in their order, if there is any.
  void raise() const {
    if (count_ == 0) return;
    throw ConfigError(lines_ + (count_ > kMost ? "\n... and " + std::to_string(count_ - kMost) + " more problems" : ""));
  }

 private:
  static constexpr size_t kMost = 50;  // lines
  std::string lines_;
  size_t count_ = 0;
};

}  // namespace trireme
