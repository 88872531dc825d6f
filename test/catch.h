// Includes Catch2 of major version 2 or 3 under one name.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

// Before GCC lets Catch2 compare two of these, it checks whether one can be compared with Catch2's
// own expression of it. For a class that converts to others, this check recurses without end.
// Answering no ends it.
namespace trireme {
class Json;
}
template <>
struct Catch::Detail::is_eq_comparable<trireme::Json&, Catch::ExprLhs<trireme::Json&>, void> : std::false_type {};
template <>
struct Catch::Detail::is_eq_comparable<const trireme::Json&, Catch::ExprLhs<const trireme::Json&>, void> : std::false_type {};

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif
