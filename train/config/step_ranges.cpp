#include "train/config/step_ranges.h"

#include <algorithm>
#include <charconv>

namespace trireme {

std::optional<StepRange> parse_step_range(const std::string& text) {
  StepRange range{};
  const char* const end = text.data() + text.size();
  const auto digits = [&](const char* from, int64_t& number) {  // returns the end; nullptr without digits
    if (from == end || *from < '0' || *from > '9') return static_cast<const char*>(nullptr);
    const auto [at, status] = std::from_chars(from, end, number);
    return status == std::errc() ? at : nullptr;
  };
  const char* at = digits(text.data(), range.first);
  range.last = range.first;
  if (at != nullptr && at != end) at = *at == '-' ? digits(at + 1, range.last) : nullptr;
  if (at != end) return std::nullopt;
  if (range.first < 1 || range.last < range.first) return std::nullopt;
  return range;
}

std::string to_text(const StepRange& range) {
  return std::to_string(range.first) + (range.last > range.first ? "-" + std::to_string(range.last) : "");
}

bool holds(const StepRanges& ranges, int64_t step) {
  return std::ranges::any_of(ranges, [&](const StepRange& range) { return range.first <= step && step <= range.last; });
}

}  // namespace trireme
