// The version is set in CMakeLists.txt; the pages that repeat it must agree.
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "test/catch.h"

namespace {

// The first match of the pattern's group in a file of the repository.
std::string found_in(const std::string& file, const std::string& pattern) {
  std::ifstream in(std::string(TRIREME_SOURCE) + "/" + file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "no match in " + file;
}

}  // namespace

TEST_CASE("changelog and citation have the program's version and one date") {
  const std::string version = found_in("CMakeLists.txt", "project\\(trireme VERSION ([0-9.]+)");
  CHECK(found_in("CHANGELOG.md", "\n## ([0-9.]+) - ") == version);
  CHECK(found_in("CITATION.cff", "\nversion: ([0-9.]+)\n") == version);
  CHECK(found_in("CITATION.cff", "\ndate-released: ([0-9-]+)\n") == found_in("CHANGELOG.md", "\n## [0-9.]+ - ([0-9-]+)\n"));
}
