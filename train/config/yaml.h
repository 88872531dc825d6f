// YAML as a small tree whose every node knows its line. The only host of yaml-cpp.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// One value of a YAML file, with the line in which it stands.
struct Node {
  enum class Kind { null, plain, quoted, list, map } kind = Kind::null;
  int line = 0;
  std::string text{};            // of a scalar
  std::vector<Node> children{};  // of a list: the elements; of a map: key, value, key, value, ...

  bool scalar() const { return kind == Kind::plain || kind == Kind::quoted; }
};

// The one document in bytes; Kind::null when there is none. `name` stands for the file in messages.
// ConfigError "name:line[:column]: ..." for what is no YAML, and for what a config has no use for: anchors, aliases, tags, a second
// document, more than 8 levels.
Node parse_yaml(const std::string& name, const std::string& bytes);

// The bytes of a file of at most 1 MiB. ConfigError when it cannot be read, is larger, is indented with tabs or is no text.
std::string read_yaml_bytes(const std::string& path);

}  // namespace trireme
