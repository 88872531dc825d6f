// The half of config.h that reads: YAML and --set become a RunConfig, with all problems at once.

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "train/config/config.h"
#include "train/config/keys.h"
#include "train/config/yaml.h"

namespace trireme {
namespace {

constexpr size_t kMostProblems = 50;

// All that is wrong, in the order in which it was found.
class Problems {
 public:
  void add(const std::string& line) {
    if (++count_ <= kMostProblems) lines_ += (lines_.empty() ? "" : "\n") + line;
  }
  void raise() const {
    if (count_ == 0) return;
    std::string more;
    if (count_ > kMostProblems) more = "\n... and " + std::to_string(count_ - kMostProblems) + " more problems";
    throw ConfigError(lines_ + more);
  }

 private:
  std::string lines_;
  size_t count_ = 0;
};

// One reading of a file and its overrides: the config so far, where each key was set, and what is wrong.
class Reading {
 public:
  explicit Reading(const std::string& path) : path_(path) {}

  RunConfig config;

  void file() try {
    yaml(read_yaml_bytes(path_));
  } catch (const ConfigError& e) {  // the file cannot be read; what is wrong with the overrides is still told
    problems_.add(e.what());
    unread_ = true;
  }

  void yaml(const std::string& bytes) {
    const Node root = parse_yaml(path_, bytes);
    if (root.kind == Node::Kind::null) return problems_.add(path_ + ": is empty; the sections are " + joined(section_names()));
    if (root.kind != Node::Kind::map) return problems_.add(at(root) + ": must hold sections (" + joined(section_names()) + ")");
    std::map<std::string, int> first_lines;
    for (size_t i = 0; i + 1 < root.children.size(); i += 2) {
      const Node &name = root.children[i], &value = root.children[i + 1];
      if (unique(first_lines, name, name.text)) section(name, value);
    }
  }

  void override(const std::string& assignment) {
    const std::string where = "--set " + assignment;
    const size_t equals = assignment.find('='), dot = assignment.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      const std::string near = suggestion("", assignment.substr(0, equals));
      return problems_.add(where + ": must be section.key=value" + near);
    }
    const std::string section = assignment.substr(0, dot), key = assignment.substr(dot + 1, equals - dot - 1);
    if (!known_section(where, section) || !known_key(where, section, key)) return;
    Written value;
    const std::string text = assignment.substr(equals + 1);
    try {
      value = override_value(where, text, is_list(section, key));
    } catch (const ConfigError& e) {
      return troubled(section + "." + key, e.what());
    }
    set(where, section, key, value);
  }

  // Resolves, checks what keys must be to each other, and throws if anything was wrong.
  RunConfig finish(Purpose purpose) {
    if (unread_) problems_.raise();
    config.resolve();
    config.check(purpose, [&](const std::string& key, const std::string& problem) {
      const bool consequence =
          std::ranges::any_of(troubled_, [&](const std::string& bad) { return key == bad || mentions(problem, bad); });
      if (!consequence) problems_.add(origin(key) + ": " + problem);
    });
    problems_.raise();
    return config;
  }

 private:
  std::string at(const Node& node) const { return path_ + ":" + std::to_string(node.line); }

  static std::string joined(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : ", ") + word;
    return line;
  }

  std::vector<std::string> section_names() const {
    std::vector<std::string> names;
    for (const Key& key : keys_)
      if (names.empty() || names.back() != key.section) names.push_back(key.section);
    return names;
  }

  std::vector<std::string> key_names(const std::string& section) const {
    std::vector<std::string> names;
    for (const Key& key : keys_)
      if (key.section == section) names.push_back(key.name);
    return names;
  }

  // "; did you mean model.layers?", or "". A near name of the same section first, then the same name in another one.
  std::string suggestion(const std::string& section, const std::string& name) {
    std::string near = nearest(name, key_names(section));
    if (!near.empty()) near = section + "." + near;
    for (const Key& key : keys_)
      if (near.empty() && (key.name == name || key.full() == name)) near = key.full();
    if (near.empty()) return "";
    troubled_.push_back(near);  // it was meant, so what follows from its default is no news
    return "; did you mean " + near + "?";
  }

  bool unique(std::map<std::string, int>& first_lines, const Node& name, const std::string& full) {
    if (!name.scalar()) {
      problems_.add(at(name) + ": a name is missing before ':'");
      return false;
    }
    const auto [first, added] = first_lines.emplace(name.text, name.line);
    if (!added) problems_.add(at(name) + ": " + full + ": stands twice, first in line " + std::to_string(first->second));
    return added;
  }

  bool known_section(const std::string& where, const std::string& name) {
    const std::vector<std::string> names = section_names();
    if (std::ranges::find(names, name) != names.end()) return true;
    const std::string near = nearest(name, names);
    problems_.add(where + ": unknown section; " + (near.empty() ? "there are " + joined(names) : "did you mean " + near + "?"));
    return false;
  }

  bool known_key(const std::string& where, const std::string& section, const std::string& name) {
    const std::vector<std::string> names = key_names(section);
    if (std::ranges::find(names, name) != names.end()) return true;
    const std::string near = suggestion(section, name);
    problems_.add(where + ": unknown key" + (near.empty() ? "; " + section + " has " + joined(names) : near));
    return false;
  }

  void section(const Node& name, const Node& value) {
    if (!known_section(at(name) + ": " + shown({.texts = {name.text}}), name.text)) return;
    if (value.kind == Node::Kind::null) return;  // a section whose keys are all commented out
    if (value.kind != Node::Kind::map) return problems_.add(at(name) + ": " + name.text + ": must hold keys, indented below it");
    std::map<std::string, int> first_lines;
    for (size_t i = 0; i + 1 < value.children.size(); i += 2) {
      const Node& key = value.children[i];
      if (unique(first_lines, key, name.text + "." + key.text)) entry(name.text, key, value.children[i + 1]);
    }
  }

  void entry(const std::string& section, const Node& key, const Node& value) {
    const std::string full = section + "." + shown({.texts = {key.text}}), where = at(key) + ": " + full;
    if (!known_key(where, section, key.text)) return;
    if (value.kind == Node::Kind::null) return troubled(full, where + ": has no value");
    if (value.kind == Node::Kind::map) return troubled(full, where + ": holds keys of its own; it must be one value");
    Written written{.texts = {}, .list = value.kind == Node::Kind::list, .quoted = value.kind == Node::Kind::quoted};
    if (!written.list) written.texts.push_back(value.text);
    for (const Node& element : value.children) {
      if (!element.scalar()) return troubled(full, at(element) + ": " + full + ": an element must be one value");
      written.texts.push_back(element.text);
    }
    set(where + " = " + shown(written), section, key.text, written);
  }

  void set(const std::string& where, const std::string& section, const std::string& key, const Written& value) {
    const std::string problem = set_key(config, section, key, value);
    if (problem.empty())
      origins_[section + "." + key] = where;
    else
      troubled(section + "." + key, where + ": " + problem);
  }

  void troubled(const std::string& key, const std::string& problem) {
    troubled_.push_back(key);
    problems_.add(problem);
  }

  bool is_list(const std::string& section, const std::string& name) const {
    return std::ranges::any_of(keys_,
                               [&](const Key& k) { return k.section == section && k.name == name && k.value.starts_with('['); });
  }

  // a,b or [a, "b, c"] for a list, the bare text for everything else.
  static Written override_value(const std::string& where, const std::string& text, bool list) {
    if (!list) return {.texts = {text}};
    Written value{.texts = {}, .list = true};
    if (text.starts_with('[')) {
      const Node node = parse_yaml(where, text);
      for (const Node& element : node.children) value.texts.push_back(element.scalar() ? element.text : "");
      return value;
    }
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) value.texts.push_back(part);
    return value;
  }

  // Whether the message names the key, as a whole word.
  static bool mentions(const std::string& message, const std::string& key) {
    for (size_t i = message.find(key); i != std::string::npos; i = message.find(key, i + 1)) {
      const char next = i + key.size() < message.size() ? message[i + key.size()] : ' ';
      if (next != '_' && !std::isalnum(static_cast<unsigned char>(next))) return true;
    }
    return false;
  }

  // Where the key got its value, for a message about it.
  std::string origin(const std::string& full) const {
    if (const auto set = origins_.find(full); set != origins_.end()) return set->second;
    for (const Key& key : list_keys(config))
      if (key.full() == full) return path_ + ": " + full + " = " + key.value + " (not set)";
    return path_ + ": " + full;
  }

  const std::string path_;
  const std::vector<Key> keys_ = list_keys({});
  Problems problems_;
  bool unread_ = false;
  std::vector<std::string> troubled_;           // keys whose value is not what the user meant
  std::map<std::string, std::string> origins_;  // section.key -> "configs/x.yaml:12: model.heads = 7"
};

}  // namespace

RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides, Purpose purpose) {
  Reading reading(path);
  reading.file();
  for (const std::string& assignment : overrides) reading.override(assignment);
  return reading.finish(purpose);
}

RunConfig parse_config(const std::string& name, const std::string& yaml, const std::vector<std::string>& overrides,
                       Purpose purpose) {
  Reading reading(name);
  reading.yaml(yaml);
  for (const std::string& assignment : overrides) reading.override(assignment);
  return reading.finish(purpose);
}

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
