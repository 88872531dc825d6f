// ConfigProblems: collects all problems of a config, so that a user sees them at once.
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
  // Throws a ConfigError with one line per problem, in order, if there are any.
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
