// JsonParser: the one reader of JSON (RFC 8259). It takes time in proportion to the text, does not
// recurse, and has limits. JsonError names the limit or the mistake, and its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace trireme {

class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits);

  Json parse();
  // Gives each member of the object that the text is to `take`, and keeps none of them. The limit of
  // values is that of a member.
  void parse_members(const std::function<void(const std::string& name, Json value)>& take);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_at(size_t at, const std::string& what) const;
  void skip_space();
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c);
  void count();
  void hand_over();
  void read_value();
  Json& place(Json value);
  void read_name();
  Json read_number();
  Json read_word();
  std::string read_string();
  void read_escape(std::string& out);
  uint32_t read_hex();

  const std::string_view text_;
  const JsonLimits limits_;
  size_t at_ = 0;
  int64_t values_ = 0;  // and names
  Json root_;
  std::vector<Json*> open_;
  bool first_ = false;                                                   // a container has just begun
  std::string name_;                                                     // of the next value
  const std::function<void(const std::string&, Json)>* take_ = nullptr;  // of members of the root
};

}  // namespace trireme
