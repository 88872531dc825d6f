// Marks builds with a sanitizer, in which a step takes ten to thirty times as long: tests of many
// similar cases run fewer. Needs the macro that test/CMakeLists.txt gives each room's tests.
#pragma once

namespace trireme {

inline constexpr bool kSanitized = TRIREME_SANITIZE[0] != '\0';

}  // namespace trireme
