// The half of config.h that reads: YAML and --set become a RunConfig, with all problems at once.

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/text_stream.h"
#include "train/config/config.h"
#include "train/config/config_problems.h"
#include "train/config/expand_path.h"
#include "train/config/key_names.h"
#include "train/config/missing_files.h"
#include "train/config/yaml.h"

namespace trireme {
namespace {

constexpr int kMostIncluded = 100;  // files, against ever more of them

// State while a file, the files that it includes and the overrides are read: the config so far, the
// origin of each key, and all problems.
class Reading {
 public:
  explicit Reading(const std::string& path) : files_{path} {}

  RunConfig config;

  // An unreadable file does not hide what is wrong with the overrides.
  void file() try { document(read_yaml_bytes(files_[0]), true); } catch (const ConfigError& e) {
    problems_.add(e.what());
    unread_ = true;
  }

  // One YAML document of the last of `files_`. Its own keys win over those of files that it includes.
  void document(const std::string& bytes, bool may_include) {
    const Node root = parse_yaml(files_.back(), bytes);
    if (root.kind == Node::Kind::null) return problems_.add(files_.back() + ": is empty; the sections are " + names_.sections());
    if (root.kind != Node::Kind::map) return problems_.add(at(root) + ": must hold sections (" + names_.sections() + ")");
    std::map<std::string, int> first_lines;
    for (size_t i = 0; i + 1 < root.children.size(); i += 2)
      if (may_include && root.children[i].text == "include") include(root.children[i], root.children[i + 1]);
    for (size_t i = 0; i + 1 < root.children.size(); i += 2) {
      const Node &name = root.children[i], &value = root.children[i + 1];
      if (unique(first_lines, name, name.text) && !(may_include && name.text == "include")) section(name, value);
    }
  }

  void override(const std::string& assignment) {
    const std::string where = "--set " + assignment;
    const size_t equals = assignment.find('='), dot = assignment.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) return incomplete(where, assignment);
    const std::string section = assignment.substr(0, dot), name = assignment.substr(dot + 1, equals - dot - 1);
    const Key* key = known_section(where, section, true) ? known_key(where, section, name) : nullptr;
    if (key == nullptr) return;
    Written value;
    try {
      value = override_value(where, assignment.substr(equals + 1), key->value.starts_with('['));
    } catch (const ConfigError& e) {
      return troubled(key->full(), e.what());
    }
    set(where, *key, value);
  }

  bool has(const std::string& key) const { return origins_.contains(key); }

  // Resolves, checks keys against each other, and throws if anything was wrong.
  RunConfig finish(Purpose purpose) {
    if (unread_) problems_.raise();
    config.resolve();
    config.check(purpose, [&](const std::string& key, const std::string& problem) {
      const bool consequence =
          std::ranges::any_of(troubled_, [&](const std::string& bad) { return key == bad || mentions(problem, bad); });
      if (!consequence) problems_.add(origin(key) + ": " + problem);
    });
    problems_.raise();
    if (purpose == Purpose::start) check_files();
    problems_.raise();
    return config;
  }

 private:
  std::string at(const Node& node) const { return files_.back() + ":" + std::to_string(node.line); }

  void include(const Node& name, const Node& value) {
    const bool list = value.kind == Node::Kind::list;
    const std::vector<Node> files = list ? value.children : std::vector<Node>{value};
    for (const Node& file : files) {
      const std::string where = at(file) + ": include";
      if (!file.scalar()) return problems_.add(at(name) + ": include: must be a file or a list of files");
      const ExpandedPath written = expand_path(file.text);
      const std::string path = (std::filesystem::path(files_.back()).parent_path() / written.path).string();
      if (!written.problem.empty())
        problems_.add(where + ": " + file.text + ": " + written.problem);
      else
        include_file(where, path);
    }
  }

  void include_file(const std::string& where, const std::string& path) {
    if (std::ranges::any_of(files_, [&](const std::string& other) { return same_file(other, path); }))
      return problems_.add(where + ": " + path + " includes itself");
    if (++included_ > kMostIncluded) return problems_.add(where + ": more than " + std::to_string(kMostIncluded) + " files");
    std::string bytes;
    try {
      bytes = read_yaml_bytes(path);
    } catch (const ConfigError& e) {
      return problems_.add(where + ": " + e.what());
    }
    files_.push_back(path);
    try {
      document(bytes, true);
    } catch (const ConfigError& e) {  // not valid YAML
      problems_.add(e.what());
    }
    files_.pop_back();
  }

  static bool same_file(const std::string& a, const std::string& b) {
    std::error_code missing;
    return std::filesystem::equivalent(a, b, missing);
  }

  // --set without a value, or without a section.
  void incomplete(const std::string& where, const std::string& assignment) {
    const size_t equals = assignment.find('='), dot = assignment.find('.');
    const std::string name = assignment.substr(0, equals);
    const bool is_key = dot != std::string::npos && dot < name.size() && names_.find(name.substr(0, dot), name.substr(dot + 1));
    if (is_key) {
      troubled_.push_back(name);
      return problems_.add(where + ": has no value; write " + name + "=VALUE");
    }
    const Advice advice = names_.on_key("", name);
    if (!advice.meant.empty()) troubled_.push_back(advice.meant);
    problems_.add(where + ": must be section.key=value" + (advice.meant.empty() ? "" : "; " + advice.words));
  }

  bool unique(std::map<std::string, int>& first_lines, const Node& name, const std::string& full) {
    if (!name.scalar()) {
      problems_.add(at(name) + ": a name is missing before ':'");
      return false;
    }
    const auto [first, added] = first_lines.emplace(name.text, name.line);
    if (!added) problems_.add(at(name) + ": " + full + ": appears twice, first in line " + std::to_string(first->second));
    return added;
  }

  bool known_section(const std::string& where, const std::string& name, bool holds_keys) {
    if (names_.has_section(name)) return true;
    const Advice advice = names_.on_section(name, holds_keys);
    if (!advice.meant.empty()) troubled_.push_back(advice.meant);
    problems_.add(where + ": unknown section; " + advice.words);
    return false;
  }

  // Marks the key that was meant as troubled, so that consequences of its default are not reported.
  const Key* known_key(const std::string& where, const std::string& section, const std::string& name) {
    if (const Key* key = names_.find(section, name)) return key;
    const Advice advice = names_.on_key(section, name);
    if (!advice.meant.empty()) troubled_.push_back(advice.meant);
    problems_.add(where + ": unknown key; " + advice.words);
    return nullptr;
  }

  void section(const Node& name, const Node& value) {
    const bool holds_keys = !value.scalar() && value.kind != Node::Kind::list;
    if (!known_section(at(name) + ": " + shown({.texts = {name.text}}), name.text, holds_keys)) return;
    if (value.kind == Node::Kind::null) return;  // a section whose keys are all commented out
    if (value.kind != Node::Kind::map) return problems_.add(at(name) + ": " + name.text + ": must hold keys, indented below it");
    std::map<std::string, int> first_lines;
    for (size_t i = 0; i + 1 < value.children.size(); i += 2) {
      const Node& key = value.children[i];
      if (unique(first_lines, key, name.text + "." + key.text)) entry(name.text, key, value.children[i + 1]);
    }
  }

  void entry(const std::string& section, const Node& name, const Node& value) {
    const std::string full = section + "." + shown({.texts = {name.text}}), where = at(name) + ": " + full;
    const Key* key = known_key(where, section, name.text);
    if (key == nullptr) return;
    if (value.kind == Node::Kind::null) return troubled(full, where + ": has no value");
    if (value.kind == Node::Kind::map) return troubled(full, where + ": holds keys of its own; it must be one value");
    Written written{.texts = {}, .list = value.kind == Node::Kind::list, .quoted = value.kind == Node::Kind::quoted};
    if (!written.list) written.texts.push_back(value.text);
    for (const Node& element : value.children) {
      if (!element.scalar()) return troubled(full, at(element) + ": " + full + ": an element must be one value");
      written.texts.push_back(element.text);
    }
    set(where + " = " + shown(written), *key, written);
  }

  void set(const std::string& where, const Key& key, Written value) {
    for (std::string& text : value.texts) {
      if (!key.limit.is_path) break;
      const ExpandedPath expanded = expand_path(text);
      if (!expanded.problem.empty()) return troubled(key.full(), where + ": " + expanded.problem);
      text = expanded.path;
    }
    const std::string problem = set_key(config, key.section, key.name, value);
    if (problem.empty())
      origins_[key.full()] = where;
    else
      troubled(key.full(), where + ": " + problem);
  }

  void check_files() {
    bool relative = false;
    for (const MissingFile& file : missing_files(config)) {
      const std::string where = origin(file.key);
      const bool shows =
          where.ends_with("=" + file.path) || where.ends_with("= " + file.path) || where.ends_with("= [" + file.path + "]");
      problems_.add(where + ": " + (shows ? "" : file.path + ": ") + file.problem);
      relative |= !file.path.starts_with('/');
    }
    if (relative) problems_.add("paths count from the working directory, " + std::filesystem::current_path().string());
  }

  void troubled(const std::string& key, const std::string& problem) {
    troubled_.push_back(key);
    problems_.add(problem);
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
    TextReader parts(text);
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

  // Returns the origin of the key's value, for a message about it.
  std::string origin(const std::string& full) const {
    if (const auto set = origins_.find(full); set != origins_.end()) return set->second;
    for (const Key& key : list_keys(config))
      if (key.full() == full) return files_[0] + ": " + full + " = " + key.value + " (not set)";
    return files_[0] + ": " + full;
  }

  std::vector<std::string> files_;  // the config, and the files that include each other down to the one being read
  int included_ = 0;
  const KeyNames names_;
  ConfigProblems problems_;
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
  reading.document(yaml, false);
  for (const std::string& assignment : overrides) reading.override(assignment);
  return reading.finish(purpose);
}

RunConfig parse_saved_config(const std::string& name, const std::string& yaml, const std::vector<std::string>& overrides,
                             Purpose purpose) {
  Reading reading(name);
  reading.document(yaml, false);
  KernelsConfig& kernels = reading.config.kernels;
  if (!reading.has("kernels.residual") && kernels.dtype == StepDtype::bf16) kernels.residual = ResidualDtype::bf16;
  for (const std::string& assignment : overrides) reading.override(assignment);
  return reading.finish(purpose);
}

}  // namespace trireme
