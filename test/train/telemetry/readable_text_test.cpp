// ReadableText: whatever bytes a model makes, whole characters come out, whichever way they were cut.
#include "train/telemetry/readable_text.h"

#include "base/utf8.h"
#include "test/catch.h"

namespace trireme {
namespace {

std::string readable(std::string_view bytes, size_t piece, Controls controls = Controls::show) {
  ReadableText text(controls);
  std::string all;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    const std::string part = text.next(bytes.substr(i, piece));
    CHECK(utf8_prefix(part) == part.size());  // never half a character
    all += part;
  }
  return all + text.finish();
}

}  // namespace

TEST_CASE("readable text has whole characters, however its bytes arrive") {
  const std::string text = "naïve – 日本 🚣\tok\r\nline\n";
  for (const size_t piece : {1, 2, 3, 5, 100}) {
    CAPTURE(piece);
    CHECK(readable(text, piece) == text);
    CHECK(readable(text, piece, Controls::keep) == text);
    CHECK(readable("a\xff"
                   "b\xe6\x97"
                   "c\xc0\xaf",
                   piece) == "a\uFFFDb\uFFFD\uFFFDc\uFFFD\uFFFD");
    CHECK(readable("broken off \xf0\x9f\x9a", piece) == "broken off \uFFFD\uFFFD\uFFFD");
  }
}

TEST_CASE("no control character of a readable text reaches a terminal") {
  const std::string attack(
      "\x1b]0;title\x07 \x1b[2J\rover\b\x7f\xc2\x9b"
      "31m\0",
      28);
  for (const size_t piece : {1, 4, 100}) {
    const std::string shown = readable(attack, piece);
    CHECK(shown == "^[]0;title^G ^[[2J^Mover^H^?\uFFFD31m^@");
    CHECK(readable(attack, piece, Controls::keep) == attack);
  }
  CHECK(readable("ends with\r", 3) == "ends with^M");
}

}  // namespace trireme
