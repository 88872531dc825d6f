// TextPattern: a regular expression (PCRE2's, with Unicode), looked for anywhere in a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class TextPattern {
 public:
  explicit TextPattern(const std::string& pattern);  // ConfigError for one that cannot be compiled
  ~TextPattern();
  TextPattern(const TextPattern&) = delete;
  TextPattern& operator=(const TextPattern&) = delete;

  bool found_in(std::string_view text) const;  // bytes that are not UTF-8 match nothing

 private:
  struct Code;
  const std::unique_ptr<Code> code_;
};

}  // namespace trireme
