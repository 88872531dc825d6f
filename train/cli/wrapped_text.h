// Lines of help, wrapped to the width of a page.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Breaks lines of more than `width` columns at spaces. What continues a line begins below the description of an option, or the
// first text that follows two spaces or more; otherwise below its first word. A word longer than a line stays whole.
std::string wrapped(std::string_view text, size_t width);

}  // namespace trireme
