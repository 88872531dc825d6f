// TokenizerJsonMembers: the members of a tokenizer.json, taken with distrust. What is not as it must be is a DataError that names
// the file and the member.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "base/json.h"

namespace trireme {

class TokenizerJsonMembers {
 public:
  // `name` opens the messages; it outlives this.
  explicit TokenizerJsonMembers(const std::string& name) : name_(name) {}

  [[noreturn]] void fail(const std::string& what) const;
  // Which must be there; `where` stands in front of the key in the message.
  const Json& member(const Json& of, const char* key, const char* where) const;
  // `of`.`key` must be absent, null or one of `allowed`.
  void only(const Json& of, const char* where, const char* key, std::initializer_list<Json> allowed) const;
  // The parts of a sequence, which are its `list`, or the one thing that `key` is. They belong to `root`.
  std::span<const Json> parts(const Json& root, const char* key, const char* list) const;

 private:
  const std::string& name_;
};

// For messages: JSON's escapes keep it on one line.
std::string shown_on_a_line(const Json& value);

}  // namespace trireme
