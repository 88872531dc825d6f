// Comments and quoted text of a source file, for the rules about language.
#pragma once

#include <string>
#include <vector>

namespace trireme::house {

// One block: adjacent lines that hold a comment and nothing else, or a comment after code with the lines that continue it.
struct Comment {
  int line = 0;  // first line
  bool after_code = false;
  std::string text{};  // one line each, without the slashes
};

std::vector<Comment> comments_of(const std::string& source);
// The same of a script, YAML or CMake file, whose comments begin with '#'.
std::vector<Comment> hash_comments_of(const std::string& script);

// String literals at their place, blanks elsewhere; kGap stands for the code between two of them. Adjacent literals have none.
// #include lines are left out.
std::string literals_of(const std::string& source);

}  // namespace trireme::house
