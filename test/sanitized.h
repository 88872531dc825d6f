// Whether this build looks for bad memory accesses or races, where each step takes ten to thirty times as long: tests of many like
// cases then take fewer of them. Needs the macro that test/CMakeLists.txt gives each room's tests.
#pragma once

namespace trireme {

inline constexpr bool kSanitized = TRIREME_SANITIZE[0] != '\0';

}  // namespace trireme
