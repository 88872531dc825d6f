// Fuzzes the JSON reader. What it accepts is the same value once written and read again, and once
// packed and unpacked. Bytes that begin with 'p' are unpacked as they are. The quick reader of an object's members finds the same.
#include "base/json_transfer.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"
#include "train/telemetry/json_members.h"

using namespace trireme;

namespace {

// Returns how many there are, whatever the text is.
int64_t count_members(std::string_view text) {
  int64_t count = 0;
  for (JsonMembers members(text); members.next(); ++count) number_of(members.value());
  return count;
}

// The readers may take another of two members of one name.
void check_members(std::string_view text, const Json& object) {
  const int64_t count = count_members(text), names = static_cast<int64_t>(object.size());
  fuzz::must_hold(count >= names, "all members are found");
  JsonMembers members(text);
  while (members.next()) {
    const std::string name = Json::parse('"' + std::string(members.name()) + '"').string();
    fuzz::must_hold(count > names || Json::parse(members.value()) == object.at(name), "a member is the object's");
  }
  fuzz::must_hold(members.whole(), "an object ends");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view words = fuzz::words(data, size);
  count_members(words);
  try {
    const Json value = words.starts_with('p') ? unpack_json(words.substr(1), 128) : Json::parse(words);
    fuzz::must_hold(value.excerpt().size() <= 60, "an excerpt is short");
    if (words.starts_with('p')) return 0;  // its text need not be UTF-8
    constexpr std::string_view kByteOrder = "\xef\xbb\xbf";  // Json skips it, the reader of lines does not
    if (value.is_object() && !words.starts_with(kByteOrder)) check_members(words, value);
    fuzz::must_hold(Json::parse(value.dump({.ascii = true})) == value, "a value that was written reads back");
    fuzz::must_hold(unpack_json(pack_json(value), 128) == value, "a value that was packed is unpacked");
  } catch (const JsonError&) {
  }
  return 0;
}
