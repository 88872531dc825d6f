// Formats numbers for people: pure functions, three significant digits, independent of the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

std::string human_count(double count);      // 950 -> "950", 1.234e6 -> "1.23M", 4.05e11 -> "405B"
std::string human_si(double amount);        // 2.5e11 -> "250 G", for a unit to follow: "250 GFLOP/s"
std::string human_bytes(double bytes);      // 1536 -> "1.5 KiB"
std::string human_seconds(double seconds);  // 0.0123 -> "12.3ms", 4.21 -> "4.2s", 125 -> "2m 05s", 7384 -> "2h 03m"
std::optional<int64_t> parse_bytes(const std::string& words);  // "80GB", "75.5 GiB", "1e9"; nullopt: not a size above 0
std::string fixed(double value, int decimals);                 // 3.14159, 2 -> "3.14"; also "nan" and "inf"
std::string significant(double value, int digits);             // 0.00012345, 3 -> "0.000123"; 1.5e-7, 3 -> "1.5e-07"

}  // namespace trireme
