#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "test/catch.h"

namespace {

// Output and exit code of run_docs.sh, with `echo` as the program.
std::pair<std::string, int> run_docs(const std::string& arguments) {
  const std::string root = TRIREME_SOURCE;
  FILE* pipe = popen(("cd " + root + " && scripts/run_docs.sh --program /bin/echo " + arguments + " 2>&1").c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  const int status = pclose(pipe);
  return {out, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

bool is_checkout() {
  if (std::system("git -C " TRIREME_SOURCE " rev-parse --verify --quiet HEAD > /dev/null 2>&1") == 0) return true;
  WARN("skipped: no git checkout to clone");
  return false;
}

}  // namespace

TEST_CASE("the blocks of a page run in a fresh clone, in one shell and in order") {
  if (!is_checkout()) return;
  const auto [out, code] = run_docs("test/house/runnable.md");
  CHECK_THAT(out, ContainsSubstring("test/house/runnable.md: 3 blocks, "));
  CHECK(code == 0);
}

TEST_CASE("a command of a page that fails is reported with its line and output") {
  if (!is_checkout()) return;
  const auto [out, code] = run_docs("test/house/failing.md test/house/runnable.md");
  CHECK_THAT(out, ContainsSubstring("test/house/failing.md:13: failed with exit code 2\n"));
  CHECK_THAT(out, ContainsSubstring("    README.md\n") && ContainsSubstring("no_such_file"));
  CHECK_THAT(out, !ContainsSubstring("never") && !ContainsSubstring("before"));
  CHECK_THAT(out, ContainsSubstring("test/house/runnable.md: 3 blocks, "));
  CHECK(code == 1);
}

TEST_CASE("the blocks of a page are listed with their lines") {
  const auto [out, code] = run_docs("--list test/house/runnable.md");
  CHECK(out ==
        "test/house/runnable.md:6: 2 lines, hidden: mkdir texts\n"
        "test/house/runnable.md:10: 3 lines: cat texts/a.txt README.md > joined     # files of the clone, and of the comment\n"
        "test/house/runnable.md:23: 5 lines: cat <<END > two_lines\n"
        "test/house/runnable.md:30: 1 line, hidden: export RUN_DOCS_TRAIN=\"--set train.steps=4\"\n"
        "test/house/runnable.md:33: 3 lines: test \"$(trireme train x.yaml)\" = \"train x.yaml --set train.steps=4\"\n");
  CHECK(code == 0);
}

TEST_CASE("run_docs refuses pages and programs that do not exist") {
  CHECK(run_docs("no_such_page.md").second == 1);
  CHECK(run_docs("--bogus").second == 1);
  CHECK_THAT(run_docs("--program /no/such/program").first, ContainsSubstring("/no/such/program does not exist"));
}
