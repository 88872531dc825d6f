// Options of a command, declared once. visit() of the command's struct lists them; that listing is walked to parse the command
// line, to check it, and to print --help, the man page and completion.
//
//     void visit(Options& o) {
//       o("config", config, "YAML file").required();
//       o("--ranks", ranks, "Ranks to plan for", at_least(1));
//     }
//
// A name without dashes is an argument by place. --help shows a default that a user could give: a text that is not empty, or a
// number inside its limit.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/key.h"

namespace trireme {

struct Option {
  std::string name;  // "--ranks", "config"
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> field;
  std::string help;
  Limit limit{};                               // of a number
  std::vector<std::string> words{};            // that a text may be; empty: any
  bool needed = false;                         // a command line without it is refused
  bool one_each = false;                       // of a list: --set a --set b, not --set a b
  bool takes_rest = false;                     // of a list: all words that are not options, and those after --
  std::vector<std::string> with{}, without{};  // other options

  bool by_place() const { return !name.starts_with('-'); }
  bool is_flag() const { return std::holds_alternative<bool*>(field); }
  bool is_number() const { return std::holds_alternative<int64_t*>(field) || std::holds_alternative<double*>(field); }

  Option& required() { return needed = true, *this; }
  Option& one_of(std::vector<std::string> allowed) { return words = std::move(allowed), *this; }
  Option& repeated() { return one_each = true, *this; }
  Option& rest() { return takes_rest = true, *this; }
  Option& needs(std::string other) { return with.push_back(std::move(other)), *this; }
  Option& excludes(std::string other) { return without.push_back(std::move(other)), *this; }
};

class Options {
 public:
  template <class Field>
  Option& operator()(std::string name, Field& field, std::string help, Limit limit = {}) {
    return list_.emplace_back(Option{.name = std::move(name), .field = &field, .help = std::move(help), .limit = limit});
  }
  // Adds --set, which comes before the keys of a config file.
  Option& set(std::vector<std::string>& keys) {
    return (*this)("--set", keys,
                   "Value of a config key, instead of the file's: section.key=value; may be repeated, the last one wins")
        .repeated();
  }
  // Adds --json; its path is for JsonOutput.
  Option& json(std::string& path) {
    return (*this)("--json", path, "File for the results as JSON; -: standard output, with nothing else on it; default: none");
  }
  // Takes the words after --, such as the command to supervise.
  void after_dashes(std::vector<std::string>& words) { after_dashes_ = &words; }

  std::deque<Option>& list() { return list_; }
  std::vector<std::string>* after_dashes() const { return after_dashes_; }

 private:
  std::deque<Option> list_;  // references into it stay valid
  std::vector<std::string>* after_dashes_ = nullptr;
};

}  // namespace trireme
