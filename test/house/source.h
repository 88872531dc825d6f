// Source files as text, with the views of them that the rules use.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::house {

struct Source {
  std::string path;  // from the repository's root: "model/block.h"
  std::string text;
};

constexpr std::array<std::string_view, 7> kRoomNames{"base", "kernels", "parallel", "data", "model", "checkpoint", "train"};

// All C++ and CUDA sources of the rooms and of test/, sorted by path.
std::vector<Source> read_house(const std::string& root);
Source read_source(const std::string& root, const std::string& path);
// Makefile, CMake files, scripts and YAML files, sorted by path.
std::vector<Source> read_scripts(const std::string& root);

// `text` with comments and quoted text turned into spaces; lines keep their numbers.
std::string code_of(const std::string& text);
// The same with quoted text kept, for #include lines and names of tests.
std::string code_with_strings(const std::string& text);

// Calls visit(line number from 1, line) for each line.
void each_line(const std::string& text, const std::function<void(int, std::string_view)>& visit);
// "model/block.h:12: ", the beginning of a problem.
std::string at(const Source& source, int line);
// True if `line` holds `word` as a whole word; "word(" is the same name followed by a parenthesis.
bool holds_word(std::string_view line, std::string_view word);

std::string_view room_of(std::string_view path);  // the first directory
bool is_room(std::string_view name);
bool is_header(std::string_view path);
bool is_cpp(std::string_view path);  // or a header, or CUDA
// The room that a test belongs to: test/data/x.cpp may include data and whatever data may include.
std::optional<std::string_view> tested_room(std::string_view path);

}  // namespace trireme::house
