// Foreign text as a terminal may show it. Names and messages out of files cannot move its cursor,
// retitle it, reorder a line or add one.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Escapes C0 controls and bytes that are not UTF-8 as \x1b, and as \u202e the controls above:
// DEL, C1, bidirectional ones, line and paragraph separators.
std::string printable(std::string_view text);
// The same with newlines and tabs kept: for whole messages.
std::string printable_lines(std::string_view text);

}  // namespace trireme
