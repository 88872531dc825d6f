// The runbook has a section for each alert, which the alert's annotation names, and one for each exit code.
#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "test/catch.h"

namespace {

std::string page_text(const std::string& file) {
  std::ifstream in(std::string(TRIREME_SOURCE) + "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// First groups of all matches.
std::vector<std::string> found_all(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) all.push_back((*at)[1].str());
  return all;
}

// Anchors of a page's headings, as GitHub makes them.
std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  for (const std::string& heading : found_all(page, "(?:^|\n)#+ ([^\n]+)")) {
    std::string anchor;
    for (const char c : heading) {
      if (c == ' ') anchor += '-';
      if (isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
        anchor += static_cast<char>(tolower(static_cast<unsigned char>(c)));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// An alert's rule: from its name to the next one's.
std::vector<std::string> rules_of(const std::string& alerts) {
  std::vector<std::string> rules;
  const std::string mark = "- alert: ";
  for (size_t at = alerts.find(mark); at != std::string::npos;) {
    const size_t next = alerts.find(mark, at + 1);
    rules.push_back(alerts.substr(at + mark.size(), next == std::string::npos ? next : next - at - mark.size()));
    at = next;
  }
  return rules;
}

// Alerts whose runbook_url names no heading of the runbook.
std::string without_section(const std::string& alerts, const std::string& runbook) {
  const std::set<std::string> anchors = anchors_of(runbook);
  std::string missing;
  for (const std::string& rule : rules_of(alerts)) {
    const std::vector<std::string> named = found_all(rule, "runbook_url: \"?[^\"\n]*docs/operate/runbook\\.md#([^\"\n]+)");
    if (named.size() != 1 || !anchors.contains(named[0]))
      missing += rule.substr(0, rule.find('\n')) + ": add a section to docs/operate/runbook.md, and its anchor as runbook_url\n";
  }
  return missing;
}

}  // namespace

TEST_CASE("each alert names its section of the runbook") {
  const std::string alerts = page_text("docs/operate/alerts.yaml"), runbook = page_text("docs/operate/runbook.md");
  CHECK(rules_of(alerts).size() >= 10);
  CHECK(without_section(alerts, runbook) == "");
  CHECK_THAT(without_section("- alert: New\n  annotations:\n", runbook), ContainsSubstring("New: add a section"));
  CHECK_THAT(without_section("- alert: New\n  runbook_url: docs/operate/runbook.md#new\n", runbook), ContainsSubstring("New: add"));
}

TEST_CASE("each exit code has a section of the runbook") {
  const std::set<std::string> anchors = anchors_of(page_text("docs/operate/runbook.md"));
  std::set<std::string> codes;
  for (const std::string& code : found_all(page_text("docs/exit-codes.md"), "\n\\| ([0-9]+) \\|")) codes.insert(code);
  for (const std::string& code : found_all(page_text("train/cli/exit_codes.h"), "ExitMeaning\\{([0-9]+),")) codes.insert(code);
  CHECK(codes.size() >= 9);
  for (const std::string& code : codes) {
    INFO("docs/operate/runbook.md needs a section '### Exit code " << code << "'");
    CHECK(anchors.contains("exit-code-" + code));
  }
}
