// Every configuration key as data: what the resolved file and --help print, and how a written value becomes a field.
#pragma once

#include <string>
#include <vector>

#include "train/config/config.h"

namespace trireme {

// One key of one config.
struct Key {
  std::string section, name;
  std::string value;  // as YAML; reading it back gives the same bits
  std::string type;   // the field's type in a word or two, and what it may be: "a whole number, at least 1"
  std::string help;
  Limit limit{};
  std::vector<std::string> words{};  // the values of an enum
  std::string full() const { return section + "." + name; }
};

// All keys, in the order of the sections.
std::vector<Key> list_keys(const RunConfig& config);

// A value as somebody wrote it, before its key's type is known.
struct Written {
  std::vector<std::string> texts;  // one, or the elements of a list
  bool list = false;
  bool quoted = false;  // a quoted number is a text
};

// Sets section.name and returns "". When the value is refused the config is unchanged and what it must be is returned.
// The key must exist.
std::string set_key(RunConfig& config, const std::string& section, const std::string& name, const Written& value);

// The value as one short line for a message: controls escaped, long texts cut.
std::string shown(const Written& value);

// Text as a YAML scalar in double quotes.
std::string quoted(const std::string& text);

}  // namespace trireme
