#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "test/house/rules.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

void check_test_names(const Source& source, std::set<string>& seen, Problems& problems) {
  each_line(code_with_strings(source.text), [&](int number, string_view line) {
    const size_t call = line.find("TEST_CASE(\"");
    if (call != line.find_first_not_of(' ') || call == string_view::npos) return;
    const size_t open = call + 11;
    const string name(line.substr(open, line.find('"', open) - open));
    if (std::count(name.begin(), name.end(), ' ') < 2)
      problems.push_back(at(source, number) + "a test's name is a sentence: '" + name + "'");
    if (name.find_first_of(";[]\\*#$") != string::npos)  // CMake's lists and Catch's filters split there: the test would never run
      problems.push_back(at(source, number) + "a test's name is words: '" + name + "'");
    if (name.ends_with('.')) problems.push_back(at(source, number) + "a test's name has no full stop: '" + name + "'");
    if (!seen.insert(string(tested_room(source.path).value_or("")) + "/" + name).second)
      problems.push_back(at(source, number) + "a second test of this name: '" + name + "'");
  });
}

// Allows 132 columns; lines with quoted text may be longer.
void check_width(const Source& source, Problems& problems) {
  std::vector<string> code;
  each_line(code_of(source.text), [&](int, string_view line) { code.emplace_back(line); });
  std::vector<string> quoted;
  each_line(code_with_strings(source.text), [&](int, string_view line) { quoted.emplace_back(line); });
  each_line(source.text, [&](int number, string_view line) {
    const auto continues = [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    };  // a later byte of a UTF-8 character
    const auto width = std::count_if(line.begin(), line.end(), [&](char c) { return !continues(c); });
    if (width > 132 && code[number - 1] == quoted[number - 1])
      problems.push_back(at(source, number) + std::to_string(width) + " columns; 132 are allowed");
  });
}

// Words in code blocks and between backquotes.
std::set<string> words_of_page(const string& page) {
  std::set<string> words;
  bool code = false;
  string word;
  for (const char c : page + '`') {
    if (isalnum(static_cast<unsigned char>(c)) != 0 || string_view("_./-").find(c) != string_view::npos) {
      word += c;
      continue;
    }
    if (code && !word.empty()) words.insert(word);
    word.clear();
    if (c == '`') code = !code;
  }
  return words;
}

bool is_placeholder(string_view path) {  // `*.h`, `ops/x.h`
  const string_view name = path.substr(path.rfind('/') + 1);
  return name.find('.') <= 1;
}

// The room of a file, and its inner room if it has one: "train/", "cli/".
std::vector<string> rooms_of(string_view path) {
  std::vector<string> rooms;
  for (size_t end = path.find('/'); end != string_view::npos; end = path.find('/')) {
    rooms.emplace_back(path.substr(0, end + 1));
    path.remove_prefix(end + 1);
  }
  return rooms;
}

// "class Graph {" -> "Graph"; empty unless the line defines a type that is not nested.
string type_defined_in(string_view line) {
  for (const string_view begin : {"class ", "struct ", "enum class "}) {
    if (!line.starts_with(begin) || line.find('{') == string_view::npos) continue;
    const string_view name = line.substr(begin.size());
    return string(name.substr(0, name.find_first_of(" :<{")));
  }
  return {};
}

// Refuses two types of one name: the linker would silently keep the functions of one of them.
void check_types(const Source& source, std::map<string, string>& types, Problems& problems) {
  if (!is_header(source.path) || !is_room(room_of(source.path))) return;
  string space;
  each_line(code_of(source.text), [&](int line, string_view code) {
    if (code.starts_with("namespace ")) space = code;
    const string name = type_defined_in(code);
    if (name.empty() || code.find(name + '<') != string_view::npos) return;  // a specialisation
    const auto [first, fresh] = types.try_emplace(space + name, source.path);
    if (!fresh) problems.push_back(at(source, line) + "a second type " + name + "; the first is in " + first->second);
  });
}

// Names of constants that a line defines if it is not indented: "constexpr int kA = 1, kB = 2;" -> kA, kB.
std::vector<string> constants_defined_in(string_view line) {
  std::vector<string> names;
  if (!line.starts_with("constexpr ") && !line.starts_with("const ") && !line.starts_with("inline const")) return names;
  const auto in_name = [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t begin = line.find('k'); begin != string_view::npos; begin = line.find('k', begin + 1)) {
    const auto last = std::find_if_not(line.begin() + static_cast<std::ptrdiff_t>(begin), line.end(), in_name);
    const string_view name = line.substr(begin, static_cast<size_t>(last - line.begin()) - begin);
    const string_view rest = line.substr(begin + name.size());
    const bool named = name.size() > 1 && isupper(static_cast<unsigned char>(name[1])) != 0 && !in_name(line[begin - 1]);
    if (named && (rest.starts_with(" =") || rest.starts_with("{") || rest.starts_with("["))) names.emplace_back(name);
  }
  return names;
}

// Refuses two constants of one name in the sources of a room: the compiler may be given both files as one.
void check_constants(const Source& source, std::map<string, string>& constants, Problems& problems) {
  if (is_header(source.path) || !is_room(room_of(source.path)) || !source.path.ends_with(".cpp")) return;
  each_line(code_of(source.text), [&](int line, string_view code) {
    for (const string& name : constants_defined_in(code)) {
      const auto [first, fresh] = constants.try_emplace(string(room_of(source.path)) + "/" + name, source.path);
      if (!fresh && first->second != source.path)
        problems.push_back(at(source, line) + "a second constant " + name + " in this room; the first is in " + first->second);
    }
  });
}

}  // namespace

Problems check_names(const std::vector<Source>& sources) {
  Problems problems;
  std::set<string> tests;
  std::map<string, string> types, constants;
  for (const Source& source : sources) {
    const bool snake = std::all_of(source.path.begin(), source.path.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '/' || c == '.';
    });
    const bool stand_in = source.path.starts_with("test/emulation/include/");  // named after the headers they replace
    if (!snake && !stand_in) problems.push_back(source.path + ":1: files are named in snake_case");
    for (const string_view refused : {"utils", "util", "common", "core", "misc", "helpers"})
      if (holds_word(source.path, refused))
        problems.push_back(source.path + ":1: named after what it holds, not '" + string(refused) + "'");
    if (is_header(source.path) && !source.text.starts_with("//"))
      problems.push_back(source.path + ":1: a header opens with its promise");
    if (is_header(source.path) && source.text.find("\n#pragma once\n") == string::npos)
      problems.push_back(source.path + ":1: #pragma once is missing");
    check_width(source, problems);
    check_test_names(source, tests, problems);
    check_types(source, types, problems);
    check_constants(source, constants, problems);
  }
  return problems;
}

Problems check_page(const std::vector<Source>& sources, const string& page) {
  Problems problems;
  const std::set<string> words = words_of_page(page);
  std::set<string> rooms;
  for (const Source& source : sources) {
    if (!is_room(room_of(source.path))) continue;
    for (string& room : rooms_of(source.path)) rooms.insert(std::move(room));
  }
  for (const string& room : rooms)
    if (!words.contains(room)) problems.push_back("ARCHITECTURE.md:1: the room " + room + " is not named");
  for (const string& word : words) {
    const bool source = word.ends_with(".h") || word.ends_with(".cpp") || word.ends_with(".cu") || word.ends_with(".cuh");
    if (!source || is_placeholder(word)) continue;
    const auto is_it = [&](const Source& s) { return s.path == word || s.path.ends_with("/" + word); };
    if (!std::any_of(sources.begin(), sources.end(), is_it))
      problems.push_back("ARCHITECTURE.md:1: names " + word + ", which is not there");
  }
  return problems;
}

}  // namespace trireme::house
