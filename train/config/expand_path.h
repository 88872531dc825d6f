// Variables in the paths of a config: ~, $VAR and ${VAR}, as a shell expands them.
#pragma once

#include <string>

namespace trireme {

struct ExpandedPath {
  std::string path;
  std::string problem;  // "$DATA is not set"; "" if all is well
};

// Expands variables, and `~` alone or before '/' as $HOME. `$$` is a dollar sign, `$~` a tilde, and other
// dollar signs are kept. A variable that is not set, or empty, is a problem.
ExpandedPath expand_path(const std::string& text);

// Returns the text that expand_path() turns into `path`.
std::string escape_path(const std::string& path);

}  // namespace trireme
