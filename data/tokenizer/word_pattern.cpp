#include "data/tokenizer/word_pattern.h"

#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "base/text_stream.h"
#include "data/text/unicode.h"

namespace trireme {

namespace {

// White space is spelled out as Unicode's White_Space property: PCRE2's \s also counts U+180E.
constexpr const char* kSpace = R"(\x{9}-\x{d}\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

[[noreturn]] void refuse(const std::string& pattern, const std::string& what) {
  throw DataError("the pattern " + shown_pattern(pattern) + " has " + what + ", which libraries read differently");
}

// Characters that PCRE2 may be too old to count to a category, as ranges.
std::string additions_to(std::string_view category) {
  TextWriter ranges;
  const auto of = unicode_additions();
  for (auto it = of.begin(); it != of.end();) {
    const auto first = it;
    while (it != of.end() && it->category.starts_with(category) && (it == first || it->first == (it - 1)->last + 1)) ++it;
    if (it == first)
      ++it;
    else
      ranges << std::hex << "\\x{" << first->first << "}-\\x{" << (it - 1)->last << "}";
  }
  return ranges.str();
}

// \p or \P of a name: general categories are the same everywhere, of scripts PCRE2 would take the extended ones.
// If the text holds such additions, they are listed after it, which makes matching several times slower.
std::string property(char p, const std::string& name, bool in_class, bool additions) {
  constexpr std::string_view kCategories =
      " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co Cs ";
  if (kCategories.find(" " + name + " ") == std::string_view::npos) return std::string{'\\', p} + "{sc:" + name + "}";
  const std::string added = additions ? additions_to(name) : "";
  if (added.empty() || (in_class && p == 'P')) return std::string{'\\', p} + "{" + name + "}";
  const std::string members = "\\p{" + name + "}" + added;
  return in_class ? members : (p == 'P' ? "[^" : "[") + members + "]";
}

}  // namespace

std::string shown_pattern(const std::string& pattern) {
  constexpr size_t kShown = 120;
  return printable(pattern.substr(0, kShown)) + (pattern.size() > kShown ? "..." : "");
}

std::string spelled_out(const std::string& pattern, bool additions) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\' && next != '\0') {
      ++i;
      if (next == 's') {
        out += in_class ? kSpace : "[" + std::string(kSpace) + "]";
      } else if (next == 'S' && !in_class) {
        out += "[^" + std::string(kSpace) + "]";
      } else if (std::string_view("SwWbBhHvVRXKGAzZQEC").find(next) != std::string_view::npos) {
        refuse(pattern, std::string{'\\', next});
      } else {
        const size_t close = pattern.find('}', i);
        if ((next == 'p' || next == 'P') && i + 1 < pattern.size() && pattern[i + 1] == '{' && close != std::string::npos) {
          out += property(next, pattern.substr(i + 2, close - i - 2), in_class, additions);
          i = close;
        } else {
          out += std::string{c, next};
        }
      }
      continue;
    }
    if (in_class && c == '[') refuse(pattern, "a class in a class");
    if (in_class && c == '&' && next == '&') refuse(pattern, "&& in a class");
    if (!in_class && (c == '^' || c == '$')) refuse(pattern, std::string{c});
    if (!in_class && c == '}' && next == '+') refuse(pattern, "}+");
    out += c;
    if (!in_class && c == '[' && next == '^') out += next, ++i;
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
  }
  return out;
}

}  // namespace trireme
