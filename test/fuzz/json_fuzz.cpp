// Fuzzes the JSON reader. What it accepts is the same value once written and read again, and once
// packed and unpacked. Bytes that begin with 'p' are unpacked as they are.
#include "base/json_transfer.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view words = fuzz::words(data, size);
  try {
    const Json value = words.starts_with('p') ? unpack_json(words.substr(1), 128) : Json::parse(words);
    fuzz::must_hold(value.excerpt().size() <= 60, "an excerpt is short");
    if (words.starts_with('p')) return 0;  // its text need not be UTF-8
    fuzz::must_hold(Json::parse(value.dump({.ascii = true})) == value, "a value that was written reads back");
    fuzz::must_hold(unpack_json(pack_json(value), 128) == value, "a value that was packed is unpacked");
  } catch (const JsonError&) {
  }
  return 0;
}
