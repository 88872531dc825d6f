// Configuration keys as data: printed in the resolved file and --help, set from written values.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"

namespace trireme {

// One key of one config.
struct Key {
  std::string section, name;
  std::string value;  // as YAML; reading it back gives the same bits
  std::string type;   // type and limits in words: "a whole number, at least 1"
  std::string help;
  Limit limit{};
  std::vector<std::string> words{};  // the values of an enum
  std::string full() const { return section + "." + name; }
};

// Lists all keys, in the order of the sections.
std::vector<Key> list_keys(const RunConfig& config);

// A value as written, before its key's type is known.
struct Written {
  std::vector<std::string> texts;  // one, or the elements of a list
  bool list = false;
  bool quoted = false;  // a quoted number is a text
};

// Sets section.name and returns "". If the value is refused, leaves the config unchanged and returns the
// requirement. The key must exist.
std::string set_key(RunConfig& config, const std::string& section, const std::string& name, const Written& value);

// Formats the value as one short line for a message: control characters escaped, long texts truncated.
std::string shown(const Written& value);

// Formats a text as a YAML scalar in double quotes.
std::string quoted(const std::string& text);

}  // namespace trireme
