#include "data/tokenizer/tokenizer_json_members.h"

#include "base/error.h"

namespace trireme {

std::string shown_on_a_line(const Json& value) { return value.excerpt(); }

void TokenizerJsonMembers::fail(const std::string& what) const { throw DataError(name_ + ": " + what); }

const Json& TokenizerJsonMembers::member(const Json& of, const char* key, const char* where) const {
  const auto found = of.find(key);
  if (found == nullptr) fail(text("has no ", where, key));
  return *found;
}

void TokenizerJsonMembers::only(const Json& of, const char* where, const char* key, std::initializer_list<Json> allowed) const {
  const auto found = of.find(key);
  if (found == nullptr || found->is_null()) return;
  for (const Json& value : allowed)
    if (*found == value) return;
  fail(text(where, key, " = ", shown_on_a_line(*found), " is not supported"));
}

std::span<const Json> TokenizerJsonMembers::parts(const Json& root, const char* key, const char* list) const {
  const auto found = root.find(key);
  if (found == nullptr || found->is_null()) return {};
  if (!found->is_object()) fail(text(key, " is not an object"));
  if (found->value_or_null("type") != "Sequence") return {found, 1};
  const Json& all = member(*found, list, (std::string(key) + ".").c_str());
  if (!all.is_array()) fail(text(key, ".", list, " is not a list"));
  for (const Json& part : all)
    if (!part.is_object()) fail(text(key, ".", list, " has a bad entry"));
  return all.items();
}

}  // namespace trireme
