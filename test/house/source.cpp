#include "test/house/source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace trireme::house {
namespace {

using std::string;
using std::string_view;

// A small scanner for raw strings, comments and literals, the only C++ text that is not code.
string blank(const string& text, bool strings_too) {
  string out = text;
  const auto erase = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, out.size()); ++i)
      if (out[i] != '\n') out[i] = ' ';
  };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t end = i + 1;
    if (text.compare(i, 2, "//") == 0) {
      erase(i, end = std::min(text.find('\n', i), text.size()));
    } else if (text.compare(i, 2, "/*") == 0) {
      erase(i, end = std::min(text.find("*/", i + 2), text.size() - 2) + 2);
    } else if (text.compare(i, 2, "R\"") == 0 && (i == 0 || isalnum(text[i - 1]) == 0)) {
      const size_t open = text.find('(', i);
      const string close = ")" + text.substr(i + 2, open - i - 2) + "\"";
      end = std::min(text.find(close, open), text.size() - close.size()) + close.size();
      if (strings_too) erase(i, end);
    } else if (c == '"' || (c == '\'' && (i == 0 || isalnum(text[i - 1]) == 0))) {
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      if (strings_too) erase(i + 1, end);
      ++end;
    }
    i = end;
  }
  return out;
}

std::vector<Source> sorted(std::vector<Source> sources) {
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

bool is_word_char(char c) { return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

string code_of(const string& text) { return blank(text, true); }
string code_with_strings(const string& text) { return blank(text, false); }

void each_line(const string& text, const std::function<void(int, string_view)>& visit) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    visit(++number, string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
}

string at(const Source& source, int line) { return source.path + ":" + std::to_string(line) + ": "; }

bool holds_word(string_view line, string_view word) {
  const bool call = word.ends_with('(');
  const string_view name = call ? word.substr(0, word.size() - 1) : word;
  for (size_t at = line.find(name); at != string_view::npos; at = line.find(name, at + 1)) {
    if (at > 0 && is_word_char(line[at - 1])) continue;
    const size_t end = call ? line.find_first_not_of(' ', at + name.size()) : at + name.size();
    if (call ? end != string_view::npos && line[end] == '(' : end == line.size() || !is_word_char(line[end])) return true;
  }
  return false;
}

string_view room_of(string_view path) { return path.substr(0, path.find('/')); }

std::optional<string_view> tested_room(string_view path) {
  if (!path.starts_with("test/")) return std::nullopt;
  const string_view below = path.substr(5);
  return below.find('/') == string_view::npos ? std::nullopt : std::optional(room_of(below));
}

bool is_room(string_view name) { return std::find(kRoomNames.begin(), kRoomNames.end(), name) != kRoomNames.end(); }

bool is_cpp(string_view path) { return is_header(path) || path.ends_with(".cpp") || path.ends_with(".cu"); }

bool is_header(string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

Source read_source(const string& root, const string& path) {
  std::ifstream in(root + "/" + path);
  std::ostringstream content;
  content << in.rdbuf();
  require(in.good(), text("cannot read ", path));
  return {path, std::move(content).str()};
}

std::vector<Source> read_house(const string& root) {
  namespace fs = std::filesystem;
  std::vector<Source> sources;
  std::vector<string> directories{"test"};
  for (const string_view room : kRoomNames) directories.emplace_back(room);
  for (const string& directory : directories) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / directory)) {
      if (is_cpp(entry.path().string())) sources.push_back(read_source(root, fs::relative(entry.path(), root).string()));
    }
  }
  return sorted(std::move(sources));
}

std::vector<Source> read_scripts(const string& root) {
  namespace fs = std::filesystem;
  std::vector<Source> scripts;
  for (const char* path : {"CMakeLists.txt", "Dockerfile", "Makefile", "test/CMakeLists.txt"})
    if (fs::exists(fs::path(root) / path)) scripts.push_back(read_source(root, path));
  for (const char* directory : {".ci", "cmake", "configs", "scripts"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / directory))
      if (entry.is_regular_file() && entry.path().extension() != ".pyc")
        scripts.push_back(read_source(root, fs::relative(entry.path(), root).string()));
  }
  return sorted(std::move(scripts));
}

}  // namespace trireme::house
