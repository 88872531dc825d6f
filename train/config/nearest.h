// Nearest name to a misspelt one.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// The candidate with the smallest edit distance to word; "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace trireme
