// Streams over a text. Those of the standard library swallow an allocation that fails, as if the text had
// ended or nothing had been written; these throw what was thrown.
#pragma once

#include <ios>
#include <sstream>
#include <string>
#include <utility>

namespace trireme {

class TextReader : public std::istringstream {
 public:
  explicit TextReader(std::string text) : std::istringstream(std::move(text)) { exceptions(std::ios::badbit); }
};

class TextWriter : public std::ostringstream {
 public:
  TextWriter() { exceptions(std::ios::badbit); }
};

}  // namespace trireme
