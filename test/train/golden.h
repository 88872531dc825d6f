// Published models in the test's sources, made by scripts/make_published_golden.py.
#pragma once

#include <string>

namespace trireme {

// Directory of the model of this layout.
inline std::string golden_of(const std::string& layout) { return std::string(TRIREME_SOURCE) + "/test/train/goldens/" + layout; }

}  // namespace trireme
