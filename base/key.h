// Vocabulary in which each room declares its configuration keys.
//
// A config struct lists its keys once:
//   void visit(auto& keys) { keys("layers", layers, "transformer blocks", at_least(1).identity()); }
// That listing is walked to read YAML, apply --set, print --help, write the resolved file and
// refuse unknown keys.
// A key's field is a bool, int64_t, double, std::string, a std::vector of one of the last two,
// or an enum with Names.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Constraints on a key. Numbers: lowest <= value <= highest, or > lowest if open; strings and enums
// ignore these. `of_the_run` applies to every type, `is_path` to strings.
struct Limit {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool open = false;        // refuse the lowest value itself
  bool of_the_run = false;  // see identity()
  bool is_path = false;     // see path()

  // Marks a key that defines the model or the order of the data: a checkpoint with another value
  // belongs to another run.
  constexpr Limit identity() const {
    Limit limit = *this;
    limit.of_the_run = true;
    return limit;
  }
  // For a key that names files: ~, $VAR and ${VAR} are expanded.
  constexpr Limit path() const {
    Limit limit = *this;
    limit.is_path = true;
    return limit;
  }
};

constexpr Limit anything() { return {}; }
constexpr Limit identity() { return anything().identity(); }
constexpr Limit paths() { return anything().path(); }
constexpr Limit at_least(double lowest) { return {.lowest = lowest}; }
constexpr Limit above(double lowest) { return {.lowest = lowest, .open = true}; }
constexpr Limit between(double lowest, double highest) { return {.lowest = lowest, .highest = highest}; }

constexpr bool inside(double value, const Limit& limit) {
  return value <= limit.highest && (limit.open ? value > limit.lowest : value >= limit.lowest);
}

// Names of an enum whose values count from 0. Specialise it as an array of string_views, in the
// order of the values.
template <class Enum>
struct Names;

template <class Enum>
std::string_view name_of(Enum value) {
  return Names<Enum>::words.at(static_cast<size_t>(value));
}

}  // namespace trireme
