// ChainedDigest: the length and a running digest of a file of lines that only grows. Two files have
// the same one if they begin with the same lines and belong to the same owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace trireme {

struct ChainedDigest {
  int64_t bytes = 0;
  uint64_t value = 0;

  // The beginning of a file of this name and owner.
  static ChainedDigest of(std::string_view name, std::string_view owner) {
    return {.bytes = 0, .value = digest(std::string(name) + " " + std::string(owner))};
  }
  void add(std::string_view line) {  // with its newline
    value = digest(hex(value) + std::string(line));
    bytes += static_cast<int64_t>(line.size());
  }
  bool operator==(const ChainedDigest&) const = default;
};

}  // namespace trireme
