// The man page and the completion scripts hold every command, option and key; scripts/check_completion.sh tries the shells.
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "test/train/process.h"
#include "train/cli/exit_codes.h"
#include "train/config/keys.h"

using namespace trireme;

namespace {

std::string page(const std::vector<std::string>& words) {
  const Scratch scratch;
  const Ended ended = run_trireme(scratch.path(), words);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  return ended.out;
}

// Commands that the help of `path` lists.
std::vector<std::string> listed_commands(const std::string& path) {
  std::vector<std::string> words{"help"}, found;
  if (!path.empty()) words.push_back(path);
  std::istringstream help(page(words));
  bool inside = false;
  for (std::string line; std::getline(help, line);) {
    if (line == "Subcommands:") inside = true;
    if (inside && line.empty()) break;
    if (inside && line.starts_with("  ") && line[2] != ' ') found.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return found;
}

// "train", "data build", ...: all that can be run.
std::vector<std::string> all_paths() {
  std::vector<std::string> paths;
  for (const std::string& first : listed_commands("")) {
    const std::vector<std::string> second = listed_commands(first);
    if (second.empty()) paths.push_back(first);
    for (const std::string& name : second) paths.push_back(first + " " + name);
  }
  return paths;
}

std::string troff(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
  return out;
}

}  // namespace

TEST_CASE("the man page has every command, key and exit code") {
  const std::string man = page({"man"});
  CHECK(man.find(".TH TRIREME 1 ") != std::string::npos);
  const std::vector<std::string> paths = all_paths();
  CHECK(paths.size() > 20);
  for (const std::string& path : paths) CHECK_THAT(man, ContainsSubstring("\n.SS trireme " + path + "\n"));
  for (const Key& key : list_keys({})) CHECK_THAT(man, ContainsSubstring("\n\\fB" + troff(key.full()) + "\\fR = "));
  for (const auto& [code, meaning] : kExitMeanings)
    CHECK_THAT(man, ContainsSubstring("\n\\fB" + std::to_string(code) + "\\fR\n" + troff(std::string(meaning)) + "\n"));
  CHECK_THAT(man, ContainsSubstring("\n\\fB\\-\\-shard\\-tokens\\fR \\fIN\\fR\n"));
}

TEST_CASE("mandoc finds nothing to say about the man page") {
  if (std::system("command -v mandoc > /dev/null") != 0) {
    WARN("skipped: mandoc is not installed");
    return;
  }
  const Scratch scratch;
  write_text(scratch / "trireme.1", page({"man"}));
  CHECK(std::system(("mandoc -T lint -W warning " + (scratch / "trireme.1") + " > " + (scratch / "said")).c_str()) == 0);
  CHECK(read_text(scratch / "said").empty());
}

TEST_CASE("completion scripts have every command and key") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    INFO(shell);
    const std::string script = page({"completion", shell});
    for (const std::string& path : all_paths()) CHECK_THAT(script, ContainsSubstring("'" + path + "'"));
    for (const Key& key : list_keys({})) CHECK_THAT(script, ContainsSubstring(key.full() + "="));
  }
  const Scratch scratch;
  const Ended other = run_trireme(scratch.path(), {"completion", "ksh"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("ksh not in {bash,zsh,fish}"));
}
