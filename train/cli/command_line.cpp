#include "train/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text_stream.h"
#include "train/cli/command_tree.h"
#include "train/cli/exit_codes.h"
#include "train/cli/wrapped_text.h"
#include "train/config/nearest.h"

namespace trireme {
namespace {

constexpr size_t kHelpColumns = 100;

// Checks a whole number (digits), or any finite number, against a limit. The messages of CLI11's own checks mention doubles.
template <class Number>
CLI::Validator number(const Limit& limit) {
  TextWriter range;
  range.precision(std::numeric_limits<double>::max_digits10);
  if (std::isfinite(limit.highest))
    range << limit.lowest << " to " << limit.highest;
  else
    range << "at least " << limit.lowest;
  const auto complaint = [limit, range = range.str()](const std::string& word) -> std::string {
    Number value{};
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool good = status == std::errc() && stop == word.data() + word.size() && inside(static_cast<double>(value), limit);
    if (good) return "";
    return std::string("must be ") + (std::is_integral_v<Number> ? "a whole number, " : "a number, ") + range + ", not '" + word +
           "'";
  };
  return CLI::Validator(complaint, range.str());
}

CLI::Option* add_field(CLI::App& app, const Option& option, bool* field) { return app.add_flag(option.name, *field, option.help); }

template <class Number>
requires std::is_arithmetic_v<Number> CLI::Option* add_field(CLI::App& app, const Option& option, Number* field) {
  CLI::Option* made = app.add_option(option.name, *field, option.help);
  if (inside(static_cast<double>(*field), option.limit)) made->capture_default_str();
  return made->check(number<Number>(option.limit));
}

CLI::Option* add_field(CLI::App& app, const Option& option, std::string* field) {
  CLI::Option* made = app.add_option(option.name, *field, option.help);
  if (!field->empty()) made->capture_default_str();
  if (!option.words.empty()) made->check(CLI::IsMember(option.words));
  return made;
}

CLI::Option* add_field(CLI::App& app, const Option& option, std::vector<std::string>* field) {
  CLI::Option* made = app.add_option(option.name, *field, option.help);
  if (option.one_each || option.takes_rest) made->allow_extra_args(false);
  // For --help alone; it takes no word, since CLI11 would split "[1,2]". take_rest() assigns the words that are left.
  if (option.takes_rest) made->expected(0, std::numeric_limits<int>::max()), app.allow_extras();
  return made;
}

void add_options(CLI::App& app, Options& options) {
  for (Option& option : options.list()) {
    CLI::Option* made = std::visit([&](auto* field) { return add_field(app, option, field); }, option.field);
    if (option.needed) made->required();
  }
  for (const Option& option : options.list()) {
    for (const std::string& other : option.with) app.get_option(option.name)->needs(app.get_option(other));
    for (const std::string& other : option.without) app.get_option(option.name)->excludes(app.get_option(other));
  }
}

std::vector<std::string> names_of_commands(const CLI::App& level) {
  std::vector<std::string> names;
  for (const CLI::App* command : level.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

class CommandLine {
 public:
  explicit CommandLine(const std::vector<std::unique_ptr<Command>>& commands) : app_(std::string(about_program())) {
    app_.name("trireme");
    app_.set_version_flag("--version", version_line(), "Print version and commit, and exit");
    app_.require_subcommand(1);
    for (const std::unique_ptr<Command>& command : commands) add(*command);
    app_.footer(  // after all commands, which would inherit it
        "Exit codes:\n" + exit_code_lines() + "\n\nHelp of a command: trireme help COMMAND");
  }

  // Throws ConfigError for a command that does not exist, and CLI::ParseError for everything else, --help included.
  Command* parse(std::vector<std::string> words) {
    if (!words.empty() && words.front() == "help" &&
        std::ranges::none_of(words, [](const auto& w) { return w.starts_with('-'); })) {
      words.erase(words.begin());
      words.push_back("--help");
    }
    Entry* wanted = find_command(words);
    const auto dashes = std::ranges::find(words, "--");
    std::vector<std::string> after;
    if (dashes != words.end() && wanted != nullptr && wanted->takes_dashes()) {
      after.assign(dashes + 1, words.end());
      words.erase(dashes, words.end());
    }
    std::ranges::reverse(words);  // CLI11 takes them from the back
    app_.parse(std::move(words));
    take_rest(*chosen_, after);
    return chosen_->command;
  }

  std::string help() const {
    const std::string page = app_.help();
    return wrapped(page.substr(0, page.find_last_not_of('\n') + 1), kHelpColumns);
  }

  // One line for a command line that CLI11 refused: "trireme data build: --output is required; see trireme data build --help".
  std::string explain(const CLI::ParseError& refused, const std::vector<std::string>& words) const {
    std::string path = app_.get_name();
    const CLI::App* level = &app_;
    while (!level->get_subcommands().empty()) {
      level = level->get_subcommands().back();
      path += " " + level->get_name();
    }
    const std::vector<std::string> commands = names_of_commands(*level);
    const bool too_little = refused.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
    if (!commands.empty() && too_little) return help() + "\n\n" + path + ": needs a command";
    const bool too_much = refused.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    const std::string help = "see " + path + " --help";
    if (!too_little && !too_much) return path + ": " + refused.what() + "; " + help;
    std::vector<std::string> options;
    for (const CLI::Option* option : level->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (name == "--") break;
      if (!name.starts_with("--") || std::ranges::find(options, name) != options.end()) continue;
      const std::string near = nearest(name, options);
      return path + ": no option '" + name + "'; " + (near.empty() ? help : "did you mean " + near + "?");
    }
    return path + ": " + refused.what() + "; " + help;
  }

 private:
  struct Entry {
    Command* command;
    CLI::App* app;
    Options options;
    Option* rest() {
      const auto found = std::ranges::find_if(options.list(), [](const Option& option) { return option.takes_rest; });
      return found == options.list().end() ? nullptr : &*found;
    }
    // True if words after -- are arguments: the command to supervise, texts to encode.
    bool takes_dashes() { return options.after_dashes() != nullptr || rest() != nullptr; }
  };

  void add(Command& command) {
    const std::string name = command.name();
    const size_t space = name.find(' ');
    CLI::App* parent = space == std::string::npos ? &app_ : group(name.substr(0, space));
    Entry& entry = entries_.emplace_back(Entry{.command = &command, .app = nullptr, .options = {}});
    entry.app = parent->add_subcommand(name.substr(space + 1), command.about());
    entry.app->callback([this, &entry] { chosen_ = &entry; });
    if (const auto footer = command.footer()) entry.app->footer(footer);
    command.visit(entry.options);
    add_options(*entry.app, entry.options);
  }

  CLI::App* group(const std::string& name) {
    const auto it_is = [&](const CLI::App* app) { return app->get_name() == name; };
    if (const std::vector<CLI::App*> there = app_.get_subcommands(it_is); !there.empty()) return there.front();
    CLI::App* made = app_.add_subcommand(name, std::string(about_group(name)));
    made->require_subcommand(1);
    return made;
  }

  // Finds the command of the first words; nullptr if there is none. CLI11 would only report that a command is required.
  Entry* find_command(const std::vector<std::string>& words) {
    const CLI::App* level = &app_;
    std::string path = app_.get_name();
    for (const std::string& word : words) {
      const std::vector<std::string> names = names_of_commands(*level);
      if (names.empty() || word.starts_with('-')) break;
      if (std::ranges::find(names, word) == names.end()) {
        throw ConfigError(path + ": no command '" + word + "'; " + suggestion(word, *level, path));
      }
      level = level->get_subcommand(word);
      path += " " + word;
    }
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.app == level; });
    return found == entries_.end() ? nullptr : &*found;
  }

  // Suggests a command of any group by its name, or else a near one of this level: `trireme export` means `trireme model export`.
  std::string suggestion(const std::string& word, const CLI::App& level, const std::string& path) const {
    std::string full;
    for (const Entry& entry : entries_)
      if (entry.app->get_name() == word) full += (full.empty() ? "" : " or ") + entry.command->name();
    if (!full.empty()) return "did you mean trireme " + full + "?";
    const std::string near = nearest(word, names_of_commands(level));
    return near.empty() ? "see " + path + " --help" : "did you mean " + near + "?";
  }

  // Throws CLI::ExtrasError for an option that does not exist.
  static void take_rest(Entry& entry, const std::vector<std::string>& after) {
    if (std::vector<std::string>* words = entry.options.after_dashes()) *words = after;
    if (const Option* rest = entry.rest()) {
      std::vector<std::string> words = entry.app->remaining();
      for (const std::string& word : words)
        if (word.size() > 1 && word.starts_with('-')) throw CLI::ExtrasError(entry.app->get_name(), {word});
      words.insert(words.end(), after.begin(), after.end());
      *std::get<std::vector<std::string>*>(rest->field) = std::move(words);
    }
  }

  CLI::App app_;
  std::deque<Entry> entries_;  // references into it stay valid
  Entry* chosen_ = nullptr;
};

}  // namespace

Request parse_command_line(const std::vector<std::unique_ptr<Command>>& commands, int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  CommandLine line(commands);
  try {
    return {.command = line.parse(words)};
  } catch (const CLI::CallForHelp&) {
    return {.answer = line.help()};
  } catch (const CLI::CallForVersion& e) {
    return {.answer = e.what()};
  } catch (const CLI::ParseError& e) {
    return {.answer = line.explain(e, words), .code = ExitCode::usage};
  }
}

}  // namespace trireme
