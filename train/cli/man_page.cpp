#include "train/cli/man_page.h"

#include <algorithm>

#include "base/build_facts.h"
#include "base/number_format.h"
#include "train/cli/exit_codes.h"
#include "train/config/keys.h"

namespace trireme {
namespace {

constexpr size_t kTroffColumns = 78;

// Text without anything that troff would take for a request: backslashes, hyphens that are to stay minus signs.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text) + "\\fR"; }

// Lines of words that troff fills; each sentence begins a line.
std::string filled(std::string_view text) {
  std::string out, line;
  const auto end_line = [&] {
    if (line.empty()) return;
    if (line[0] == '.' || line[0] == '\'') out += "\\&";
    out += line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string word = escaped(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (line.size() + 1 + word.size() > kTroffColumns) end_line();
    line += (line.empty() ? "" : " ") + word;
    if (word.ends_with('.')) end_line();
  }
  end_line();
  return out;
}

// Lines as they are.
std::string unfilled(std::string_view text) {
  std::string out = ".PP\n.nf\n";
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = escaped(text.substr(0, end));
    out += line.empty() ? "\\&\n" : (line[0] == '.' || line[0] == '\'' ? "\\&" : "") + line + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + ".fi\n";
}

bool is_list(const Option& option) { return std::holds_alternative<std::vector<std::string>*>(option.field); }

// "VALUE", "concatenate|best-fit", "N".
std::string value_of(const Option& option) {
  std::string words;
  for (const std::string& word : option.words) words += (words.empty() ? "" : "|") + word;
  if (!words.empty()) return words;
  return option.is_number() ? "N" : option.name == "--set" ? "KEY=VALUE" : "VALUE";
}

std::string default_of(const Option& option) {
  std::string value;
  if (const auto* whole = std::get_if<int64_t*>(&option.field);
      whole != nullptr && inside(static_cast<double>(**whole), option.limit))
    value = std::to_string(**whole);
  if (const auto* real = std::get_if<double*>(&option.field); real != nullptr && inside(**real, option.limit))
    value = significant(**real, 6);
  if (const auto* words = std::get_if<std::string*>(&option.field)) value = **words;
  return value.empty() ? "" : " [" + value + "]";
}

std::string option_entry(const Option& option) {
  std::string head = option.by_place() ? italic(option.name) : bold(option.name);
  if (!option.by_place() && !option.is_flag()) head += " " + italic(value_of(option));
  if (is_list(option)) head += " ...";
  return ".TP\n" + head + "\n" + filled(option.help + default_of(option));
}

std::string synopsis(const CommandNode& node) {
  std::string line = bold("trireme " + node.path);
  for (const Option& option : node.options)
    if (!option.by_place() && option.needed) line += " " + bold(option.name) + " " + italic(value_of(option));
  line += " [" + italic("options") + "]";
  for (const Option& option : node.options) {
    if (!option.by_place()) continue;
    const std::string name = italic(option.name) + (is_list(option) ? " ..." : "");
    line += option.needed ? " " + name : " [" + name + "]";
  }
  return ".PP\n" + line +
         (node.dashes && std::ranges::none_of(node.options, &Option::by_place) ? " \\-\\- " + italic("command") : "") + "\n";
}

void add_commands(const CommandNode& node, std::string& out) {
  if (node.children.empty()) {
    out += ".SS trireme " + escaped(node.path) + "\n" + filled(node.about + ".") + synopsis(node);
    for (const Option& option : node.options) out += option_entry(option);
    if (!node.footer.empty() && node.path != "train") out += unfilled(node.footer);  // train's are the config keys, below
  }
  for (const CommandNode& child : node.children) add_commands(child, out);
}

std::string config_keys() {
  std::string out = ".SH CONFIGURATION\n" +
                    filled(
                        "A config is a YAML file of sections with keys. --set section.key=value comes before the file. These "
                        "are all keys with their defaults.");
  for (const Key& key : list_keys({}))
    out += ".TP\n" + bold(key.full()) + " = " + escaped(key.value) + "\n" + filled(key.help + " (" + key.type + ").");
  return out;
}

}  // namespace

std::string man_page(const CommandNode& root) {
  const BuildFacts facts = build_facts();
  std::string out = ".\\\" Made by `trireme man`.\n.TH TRIREME 1 \"" + facts.commit_date + "\" \"trireme " + facts.version + "\"\n";
  out += ".SH NAME\ntrireme \\- pretrain GPT\\- and Llama\\-style transformers\n";
  out += ".SH SYNOPSIS\n" + bold("trireme") + " " + italic("command") + " [" + italic("options") + "]\n";
  out += ".br\n" + bold("trireme help") + " [" + italic("command") + "]\n.br\n" + bold("trireme --version") + "\n";
  out += ".SH DESCRIPTION\n" + filled(root.about) +
         filled("Several ranks start under mpirun or srun. A run that ended early continues when the same command is given again.");
  out += ".SH COMMANDS\n" + filled("Each command also takes --help.");
  add_commands(root, out);
  out += config_keys() + ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitMeanings) out += ".TP\n" + bold(std::to_string(code)) + "\n" + filled(meaning);
  out += ".SH FILES\n.TP\n" + italic("runs/NAME/") + "\n" +
         filled("Directory of a run: config.yaml, log.txt, metrics.jsonl, report.html, exit.json and checkpoints/.");
  out += ".SH SEE ALSO\n" + filled("mpirun(1)");
  return out;
}

}  // namespace trireme
