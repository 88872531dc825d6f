// Parser of YAML into a small tree, whose nodes have line numbers. The only user of yaml-cpp.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// One value of a YAML file, with its line.
struct Node {
  enum class Kind { null, plain, quoted, list, map } kind = Kind::null;
  int line = 0;
  std::string text{};            // a scalar's
  std::vector<Node> children{};  // a list's elements; a map's keys and values: key, value, key, value, ...

  bool scalar() const { return kind == Kind::plain || kind == Kind::quoted; }
};

// Parses the only document in `bytes`; Kind::null if there is none. Messages show `name` for the file.
// ConfigError "name:line[:column]: ..." for invalid YAML, and for features that a config does not need:
// anchors, aliases, tags, a second document, more than 8 levels.
Node parse_yaml(const std::string& name, const std::string& bytes);

// Reads a file of at most 1 MiB. ConfigError if it cannot be read, is larger, is not text, or is
// indented with tabs.
std::string read_yaml_bytes(const std::string& path);

}  // namespace trireme
