#include "train/cli/completion.h"

#include <functional>

#include "train/config/keys.h"

namespace trireme {
namespace {

using Visit = std::function<void(const CommandNode&)>;

void each_node(const CommandNode& node, const Visit& visit) {
  visit(node);
  for (const CommandNode& child : node.children) each_node(child, visit);
}

enum class Values { none, number, words, keys, files };
Values values_of(const Option& option) {
  if (option.is_flag()) return Values::none;
  if (!option.words.empty()) return Values::words;
  if (option.name == "--set") return Values::keys;
  return option.is_number() ? Values::number : Values::files;
}

std::string joined_by(const std::vector<std::string>& words, const std::string& between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

// In single quotes for bash, zsh and fish; newlines become spaces.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

std::vector<std::string> config_keys_to_set() {
  std::vector<std::string> keys;
  for (const Key& key : list_keys({})) keys.push_back(key.full() + "=");
  return keys;
}

std::vector<std::string> paths_of(const CommandNode& root) {
  std::vector<std::string> paths;
  each_node(root, [&](const CommandNode& node) {
    if (!node.path.empty()) paths.push_back(single_quoted(node.path));
  });
  return paths;
}

struct CompletionCandidate {
  std::string word, about;
};
std::vector<CompletionCandidate> options_at(const CommandNode& node) {
  std::vector<CompletionCandidate> all{{"--help", "Print help"}};
  if (node.path.empty()) all.push_back({"--version", "Print version and commit"});
  for (const Option& option : node.options)
    if (!option.by_place()) all.push_back({option.name, option.help});
  return all;
}

// Words that arguments by their place may be, such as shells.
std::vector<std::string> words_by_place(const CommandNode& node) {
  for (const Option& option : node.options)
    if (option.by_place() && !option.words.empty()) return option.words;
  return {};
}

// `case` branches over the word before the cursor, for the options of a command that take a value.
std::string value_branches(const CommandNode& node, const std::string& open, const std::string& close) {
  std::string branches;
  for (const Option& option : node.options) {
    if (option.by_place() || values_of(option) == Values::none) continue;
    std::string action;
    switch (values_of(option)) {
      case Values::words:
        action = "values=" + open + joined_by(option.words, " ") + close;
        break;
      case Values::keys:
        action = "kind=keys";
        break;
      case Values::number:
        action = "kind=number";
        break;
      default:
        action = "kind=files";
    }
    branches += "      " + option.name + ") " + action + " ;;\n";
  }
  return branches.empty() ? "" : "      case $previous in\n" + branches + "      esac\n";
}

constexpr const char* kBashBegin = R"(_trireme() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= start=1 commands= options= values= kind= i
  if [[ $current == '=' ]]; then current=; elif [[ $previous == '=' ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if [[ ${COMP_WORDS[1]} == help ]] && ((COMP_CWORD > 1)); then start=2; fi
  for ((i = start; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then return; fi
    case "${command:+$command }${COMP_WORDS[i]}" in
)";
constexpr const char* kBashEnd = R"(  esac
  COMPREPLY=()
  if [[ $kind == keys ]]; then
    values=$keys
    compopt -o nospace 2> /dev/null
  elif [[ -z $kind$values && $current == -* ]]; then
    values=$options
  elif [[ -z $kind$values ]]; then
    values=$commands
  fi
  if [[ $kind == files || -z $kind$values ]]; then return; fi
  compopt +o default 2> /dev/null
  mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
}
complete -o default -F _trireme trireme
)";

constexpr const char* kZshBegin = R"(_trireme() {
  local current=$words[CURRENT] previous=$words[CURRENT-1] command= kind=
  local -a commands options values
  integer i start=2
  if [[ $words[2] == help ]] && (( CURRENT > 2 )); then start=3; fi
  for (( i = start; i < CURRENT; ++i )); do
    if [[ $words[i] == -- ]]; then _files; return; fi
    case "${command:+$command }$words[i]" in
)";
constexpr const char* kZshEnd = R"(  esac
  if [[ $kind == keys ]]; then
    compadd -S '' -a keys
  elif [[ $kind == number ]]; then
    _message number
  elif (( $#values )); then
    compadd -a values
  elif [[ $kind != files && $current == -* ]]; then
    _describe -o option options
  elif [[ $kind != files ]] && (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}
if [[ $funcstack[1] == _trireme ]]; then _trireme "$@"; else compdef _trireme trireme; fi
)";

// "name:description" for _describe.
std::string described(const CompletionCandidate& candidate) { return single_quoted(candidate.word + ":" + candidate.about); }

}  // namespace

std::string bash_completion(const CommandNode& root) {
  std::string out = "# Completion of trireme for bash, made by `trireme completion bash`.\n";
  out += kBashBegin + ("      " + joined_by(paths_of(root), " | ")) + ") command=${command:+$command }${COMP_WORDS[i]} ;;\n";
  out += "    esac\n  done\n  local keys=" + single_quoted(joined_by(config_keys_to_set(), " ")) + "\n  case $command in\n";
  each_node(root, [&](const CommandNode& node) {
    std::vector<std::string> commands = words_by_place(node), options;
    for (const CommandNode& child : node.children) commands.push_back(child.name);
    for (const CompletionCandidate& option : options_at(node)) options.push_back(option.word);
    out += "    " + single_quoted(node.path) + ")\n";
    if (!commands.empty()) out += "      commands=" + single_quoted(joined_by(commands, " ")) + "\n";
    out += "      options=" + single_quoted(joined_by(options, " ")) + "\n" + value_branches(node, "'", "'") + "      ;;\n";
  });
  return out + kBashEnd;
}

std::string zsh_completion(const CommandNode& root) {
  std::string out = "#compdef trireme\n# Completion of trireme for zsh, made by `trireme completion zsh`.\n";
  out += kZshBegin + ("      (" + joined_by(paths_of(root), "|")) + ") command=${command:+$command }$words[i] ;;\n";
  out += "    esac\n  done\n  local -a keys=(" + joined_by(config_keys_to_set(), " ") + ")\n  case $command in\n";
  each_node(root, [&](const CommandNode& node) {
    std::vector<std::string> commands, options;
    for (const std::string& word : words_by_place(node)) commands.push_back(single_quoted(word));
    for (const CommandNode& child : node.children) commands.push_back(described({child.name, child.about}));
    for (const CompletionCandidate& option : options_at(node)) options.push_back(described(option));
    out += "    (" + single_quoted(node.path) + ")\n";
    if (!commands.empty()) out += "      commands=(" + joined_by(commands, "\n        ") + ")\n";
    out += "      options=(" + joined_by(options, "\n        ") + ")\n" + value_branches(node, "(", ")") + "      ;;\n";
  });
  return out + kZshEnd;
}

std::string fish_completion(const CommandNode& root) {
  std::string out = "# Completion of trireme for fish, made by `trireme completion fish`.\n";
  out += R"(function __trireme_at --argument-names wanted
  set --local command
  set --local words (commandline -opc)
  set --erase words[1]
  test (count $words) -gt 0; and test $words[1] = help; and set --erase words[1]
  for word in $words
    set --local longer (string trim "$command $word")
    contains -- $longer )" +
         joined_by(paths_of(root), " ") + R"(; and set command $longer
  end
  test "$command" = "$wanted"
end
)";
  each_node(root, [&](const CommandNode& node) {
    const std::string at = "complete -c trireme -n " + single_quoted("__trireme_at \"" + node.path + "\"");
    for (const CommandNode& child : node.children) out += at + " -f -a " + child.name + " -d " + single_quoted(child.about) + "\n";
    for (const std::string& word : words_by_place(node)) out += at + " -f -a " + word + "\n";
    out += at + " -l help -s h -d 'Print help'\n";
    if (node.path.empty()) out += at + " -l version -d 'Print version and commit'\n";
    for (const Option& option : node.options) {
      if (option.by_place()) continue;
      const Values values = values_of(option);
      out += at + " -l " + option.name.substr(2) + (values == Values::files ? " -r" : values == Values::none ? "" : " -x");
      if (values == Values::words) out += " -a " + single_quoted(joined_by(option.words, " "));
      if (values == Values::keys) out += " -a " + single_quoted(joined_by(config_keys_to_set(), " "));
      out += " -d " + single_quoted(option.help) + "\n";
    }
  });
  return out;
}

}  // namespace trireme
