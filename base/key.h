// The vocabulary in which each room declares its configuration keys.
//
// A config struct lists its keys once:
//     void visit(auto& keys) { keys("layers", layers, "transformer blocks", at_least(1).identity()); }
// and that listing is walked to read YAML, to apply --set, to print --help, to write the resolved file and to refuse unknown keys.
// A key's field is a bool, int64_t, double, std::string, a std::vector of one of the last two, or an enum with Names.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// What a number may be: lowest <= value <= highest (or > lowest when open); strings and enums ignore that. And whether the key is a
// part of a run's identity, whatever its type.
struct Limit {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool open = false;        // the lowest value itself is refused
  bool of_the_run = false;  // see identity()

  // Of a key that says which model or which order of data is trained: with another value, a checkpoint is another run's.
  constexpr Limit identity() const {
    Limit limit = *this;
    limit.of_the_run = true;
    return limit;
  }
};

constexpr Limit anything() { return {}; }
constexpr Limit identity() { return anything().identity(); }
constexpr Limit at_least(double lowest) { return {.lowest = lowest}; }
constexpr Limit above(double lowest) { return {.lowest = lowest, .open = true}; }
constexpr Limit between(double lowest, double highest) { return {.lowest = lowest, .highest = highest}; }

constexpr bool inside(double value, const Limit& limit) {
  return value <= limit.highest && (limit.open ? value > limit.lowest : value >= limit.lowest);
}

// The words of an enum whose values count from 0: specialise as an array of string_views, in the order of the values.
template <class Enum>
struct Names;

template <class Enum>
std::string_view name_of(Enum value) {
  return Names<Enum>::words.at(static_cast<size_t>(value));
}

}  // namespace trireme
