// Steps by number, as a config lists them: [7, 100-120].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct StepRange {
  int64_t first, last;  // both in it; counted from 1
  bool operator==(const StepRange&) const = default;
};
using StepRanges = std::vector<StepRange>;

// "7" or "100-120"; nullopt for anything else.
std::optional<StepRange> parse_step_range(const std::string& text);
std::string to_text(const StepRange& range);

bool holds(const StepRanges& ranges, int64_t step);

}  // namespace trireme
