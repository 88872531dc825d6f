#include "base/printable.h"

#include "test/catch.h"

namespace trireme {

TEST_CASE("control characters of foreign text are escaped, and other text stays as it is") {
  CHECK(printable("plain ~ text") == "plain ~ text");
  CHECK(printable("naïve – 日本 🚣 العربية") == "naïve – 日本 🚣 العربية");
  CHECK(printable("a\x1b[2J\x07\x7f") == "a\\x1b[2J\\x07\\u007f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");
  CHECK(printable("x\u202ey\u2066z\u2028\ufeff") == "x\\u202ey\\u2066z\\u2028\\ufeff");
  CHECK(printable("a\xff\xe6\x97") == "a\\xff\\xe6\\x97");
  CHECK(printable("two\nlines\tand\r") == "two\\x0alines\\x09and\\x0d");
  CHECK(printable_lines("two\nlines\tand\r") == "two\nlines\tand\\x0d");
}

}  // namespace trireme
