// The half of config.h that writes: a RunConfig becomes YAML, --help and differences.

#include "train/config/config.h"
#include "train/config/keys.h"

namespace trireme {

std::string to_yaml(const RunConfig& config) {
  std::string out = "# The resolved configuration: every key. Training with this file repeats the run.\n";
  std::string section;
  for (const Key& key : list_keys(config)) {
    if (key.section != section) out += key.section + ":\n";
    section = key.section;
    out += "  " + key.name + ": " + key.value + "\n";
  }
  return out;
}

std::string config_help() {
  std::string out = "Configuration keys, with their defaults (in the YAML file, or --set section.key=value):\n";
  std::string section;
  for (const Key& key : list_keys({})) {
    if (key.section != section) out += "\n" + key.section + ":\n";
    section = key.section;
    out += "  " + key.full() + " = " + key.value + "  (" + key.type + ")\n      " + key.help + "\n";
  }
  return out;
}

std::vector<std::string> differences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> lines;
  const std::vector<Key> before = list_keys(a), after = list_keys(b);
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].value != after[i].value) lines.push_back(before[i].full() + ": " + before[i].value + " -> " + after[i].value);
  return lines;
}

}  // namespace trireme
