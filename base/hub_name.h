// Names of models on Hugging Face's hub.
#pragma once

#include <algorithm>
#include <string_view>

namespace trireme {

// Whether a path that does not exist may be meant as a name on the hub: NAME or OWNER/NAME.
inline bool may_be_hub_name(std::string_view path) {
  return !path.empty() && path.find_first_of("/.~") != 0 && !path.ends_with('/') && std::ranges::count(path, '/') <= 1;
}

}  // namespace trireme
