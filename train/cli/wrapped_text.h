// Lines of help, wrapped to the width of a page.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Breaks lines of more than `width` columns at spaces. What continues a line begins below its last column of text that follows two
// spaces or more, as descriptions of options do; otherwise below its first word. A word longer than a line stays whole.
std::string wrapped(std::string_view text, size_t width);

}  // namespace trireme
