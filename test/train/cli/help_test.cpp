// Help, version and suggestions: the first things that people try.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/build_facts.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "train/cli/exit_codes.h"
#include "train/cli/wrapped_text.h"

using namespace trireme;

namespace {

std::string project_version() {
  const std::string cmake = read_text(TRIREME_SOURCE "/CMakeLists.txt");
  std::smatch found;
  REQUIRE(std::regex_search(cmake, found, std::regex(R"(project\(trireme VERSION ([0-9.]+) )")));
  return found[1];
}

// The rows of a table of two or more columns whose first is a number.
std::vector<std::pair<int, std::string>> numbered_rows(const std::string& page) {
  std::vector<std::pair<int, std::string>> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, std::regex(R"(\| ([0-9]+) \| ([^|]*) \|.*)")))
      rows.emplace_back(std::stoi(found[1]), found[2]);
  }
  return rows;
}

}  // namespace

TEST_CASE("help COMMAND prints what COMMAND --help prints") {
  for (const std::string command : {"", "data", "data build", "train", "version", "help"}) {
    INFO(command);
    const Ended help = run_trireme_line("help " + command), dashes = run_trireme_line(command + " --help");
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK(help.out == dashes.out);
    CHECK_THAT(help.out, ContainsSubstring("Usage: trireme"));
  }
  const Ended unknown = run_trireme_line("help data biuld");
  CHECK(unknown.code == 2);
  CHECK(unknown.err == "trireme data: no command 'biuld'; did you mean build?\n");
}

TEST_CASE("no line of help is wider than 100 columns") {
  for (const char* command : {"", "data build", "train", "eval", "bench save"}) {
    std::istringstream lines(run_trireme_line(std::string("help ") + command).out);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK((line.size() <= 100 || line.find(' ', line.find_first_not_of(' ')) == std::string::npos));
    }
  }
}

TEST_CASE("a group without its command prints the help of the group") {
  for (const std::string group : {"", "data", "bench"}) {
    const Ended bare = run_trireme_line(group);
    CHECK(bare.code == 2);
    CHECK(bare.out.empty());
    CHECK(bare.err ==
          run_trireme_line(group + " --help").out + "\ntrireme" + (group.empty() ? "" : " " + group) + ": needs a command\n");
  }
}

TEST_CASE("a command that does not exist suggests the nearest one") {
  const std::pair<const char*, const char*> cases[] = {
      {"trian x.yaml", "trireme: no command 'trian'; did you mean train?\n"},
      {"verison", "trireme: no command 'verison'; did you mean version?\n"},
      {"export runs/a", "trireme: no command 'export'; did you mean trireme model export?\n"},
      {"verify x", "trireme: no command 'verify'; did you mean trireme data verify or checkpoint verify?\n"},
      {"bench kernel", "trireme bench: no command 'kernel'; did you mean kernels?\n"},
      {"nosuch", "trireme: no command 'nosuch'; see trireme --help\n"},
  };
  for (const auto& [line, message] : cases) {
    const Ended refused = run_trireme_line(line);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err == message);
  }
}

TEST_CASE("the version is that of CMake's project, with commit, back-ends and compiler") {
  const std::string first = "trireme " + project_version() + " (commit ";
  const Ended line = run_trireme_line("--version");
  CHECK(line.code == 0);
  CHECK(line.out.starts_with(first));
  CHECK(std::ranges::count(line.out, '\n') == 1);
  const Ended version = run_trireme_line("version");
  CHECK(version.code == 0);
  CHECK(version.out.starts_with(line.out));
  CHECK_THAT(version.out, ContainsSubstring("\nback-ends  CPU (") && ContainsSubstring("\ncompiler   "));
  CHECK(run_trireme_line("version now").code == 2);
  const BuildFacts facts = build_facts();
  CHECK(facts.version == project_version());
  CHECK((facts.commit == "unknown" || std::regex_match(facts.commit, std::regex("[0-9a-f]{40}"))));
  CHECK((facts.commit_date.empty() || std::regex_match(facts.commit_date, std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"))));
}

TEST_CASE("the help and the page of exit codes list the codes that the program ends with") {
  const std::string help = run_trireme_line("--help").out;
  std::vector<std::pair<int, std::string>> listed;
  std::set<int> codes;
  for (const auto& [code, meaning] : kExitMeanings) {
    listed.emplace_back(code, meaning);
    codes.insert(code);
    CHECK_THAT(help, ContainsSubstring(" " + std::to_string(code) + "  " + std::string(meaning) + "\n"));
  }
  CHECK(numbered_rows(read_text(TRIREME_SOURCE "/docs/exit-codes.md")) == listed);
  codes.erase(130);  // the signal's own
  std::smatch found;
  const std::string source = read_text(TRIREME_SOURCE "/base/error.h");
  REQUIRE(std::regex_search(source, found, std::regex(R"(enum class ExitCode : int \{([^}]*)\})")));
  std::set<int> declared;
  const std::string list = found[1];
  const std::regex number("= ([0-9]+)");
  for (std::sregex_iterator at(list.begin(), list.end(), number), end; at != end; ++at) declared.insert(std::stoi((*at)[1]));
  CHECK(codes == declared);
}

TEST_CASE("lines of help wrap below their description") {
  CHECK(wrapped("short", 10) == "short");
  CHECK(wrapped("", 10).empty());
  CHECK(wrapped("  --a   one two three four", 18) == "  --a   one two\n        three four");
  CHECK(wrapped("one two three\n\n  four five six", 8) == "one two\nthree\n\n  four\n  five\n  six");
  CHECK(wrapped("  averylongword x", 8) == "  averylongword\n  x");
  const std::string name = "  --validation FLOAT:0 to 1=0 ";  // with one space before its description
  CHECK(wrapped(name + "one two three", 38) == name + "one two\n" + std::string(30, ' ') + "three");
}
