#include "base/number_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace trireme {

namespace {

std::string printed(double value, std::chars_format format, int precision) {
  std::array<char, 400> buffer;  // the longest double in fixed notation has 309 digits
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  return {buffer.data(), end.ptr};
}

// Three significant digits of a number below 1000 (larger for the last unit), without trailing
// zeros of a fraction.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95 || value == std::round(value)) return fixed(value, 0);
  return fixed(value, size >= 9.995 ? 1 : 2);
}

template <size_t kUnits>
std::string scaled(double value, double factor, const std::array<const char*, kUnits>& units) {
  size_t unit = 0;
  while (std::abs(value) >= factor * 0.9995 && unit + 1 < kUnits) {
    value /= factor;
    ++unit;
  }
  return three_digits(value) + units[unit];
}

std::string two_fields(int64_t large, const char* large_unit, int64_t small, const char* small_unit) {
  return std::to_string(large) + large_unit + (small < 10 ? " 0" : " ") + std::to_string(small) + small_unit;
}

}  // namespace

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return printed(value, std::chars_format::fixed, decimals);
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return fixed(value, 0);
  return printed(value, std::chars_format::general, digits);
}

std::string human_count(double count) {
  if (!std::isfinite(count)) return fixed(count, 0);
  return scaled(count, 1000, std::array{"", "k", "M", "B", "T", "P", "E"});
}

std::string human_si(double amount) {
  if (!std::isfinite(amount)) return fixed(amount, 0);
  return scaled(amount, 1000, std::array{" ", " k", " M", " G", " T", " P", " E", " Z", " Y"});
}

std::string human_bytes(double bytes) {
  if (!std::isfinite(bytes)) return fixed(bytes, 0);
  return scaled(bytes, 1024, std::array{" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return fixed(seconds, 0);
  if (seconds < 0) return "-" + human_seconds(-seconds);
  if (seconds == 0) return "0s";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + "us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + "ms";
  if (seconds < 9.95) return fixed(seconds, 1) + "s";
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 9e15)));
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return two_fields(whole / 60, "m", whole % 60, "s");
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return two_fields(minutes / 60, "h", minutes % 60, "m");
  const int64_t hours = (minutes + 30) / 60;
  return two_fields(hours / 24, "d", hours % 24, "h");
}

std::optional<int64_t> parse_bytes(const std::string& words) {
  double number = 0;
  const auto [stop, status] = std::from_chars(words.data(), words.data() + words.size(), number);
  std::string unit(stop, words.data() + words.size());
  std::erase(unit, ' ');
  for (const auto& [name, factor] : {std::pair("", 1.0),
                                     {"B", 1.0},
                                     {"MB", 1e6},
                                     {"GB", 1e9},
                                     {"TB", 1e12},
                                     {"KiB", 0x1p10},
                                     {"MiB", 0x1p20},
                                     {"GiB", 0x1p30},
                                     {"TiB", 0x1p40}})
    if (status == std::errc() && unit == name && number > 0 && number * factor < 0x1p62)
      return static_cast<int64_t>(number * factor);
  return std::nullopt;
}

}  // namespace trireme
