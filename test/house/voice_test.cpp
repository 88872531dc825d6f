#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <regex>

#include "test/catch.h"
#include "test/house/comments.h"
#include "test/house/rules.h"

using namespace trireme::house;

namespace {

std::string listed(const Problems& problems) {
  std::string all;
  for (const std::string& problem : problems) all += problem + "\n";
  return all;
}

std::string prose(const std::string& text, const std::string& path = "docs/x.md") { return listed(check_prose({{path, text}})); }
std::string page_words(const std::string& text) { return listed(check_page_words({{"docs/x.md", text}})); }
std::string source_words(const std::string& text, const std::string& path = "model/x.cpp") {
  return listed(check_source_words({{path, text}}));
}
std::string openings(const std::string& text, const std::string& path = "model/x.cpp") {
  return listed(check_openings({{path, text}}));
}

std::string repeated(const std::string& word, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += word;
  return all;
}

// Words of each sentence, such as "3 2 ".
std::string counts(const std::string& text) {
  std::string all;
  for (const Sentence& sentence : parse_page(text).sentences) all += std::to_string(sentence.words) + " ";
  return all;
}

int longest(const std::vector<Width>& widths) {
  int most = 0;
  for (const Width& width : widths) most = std::max(most, width.columns);
  return most;
}

void print_pages() {
  std::printf("%-28s %6s %10s %10s %8s %13s %13s\n", "page", "lines", "sentences", "words/s.", "longest", "longest line",
              "longest cell");
  for (const Source& source : read_pages(TRIREME_SOURCE)) {
    const Page page = parse_page(source.text);
    int most = 0;
    for (const Sentence& sentence : page.sentences) most = std::max(most, sentence.words);
    std::printf("%-28s %6d %10zu %10.1f %8d %13d %13d\n", source.path.c_str(), page.line_count, page.sentences.size(),
                mean_words(page), most, longest(page.lines), longest(page.cells));
  }
}

std::map<std::string, int> by_room(const Problems& problems) {
  std::map<std::string, int> counts;
  for (const std::string& problem : problems) ++counts[problem.substr(0, problem.find_first_of("/:"))];
  return counts;
}

void print_rooms(const std::string& rule, const Problems& problems) {
  std::cout << rule << ": " << problems.size() << " breaches;";
  for (const auto& [room, count] : by_room(problems)) std::cout << ' ' << room << ' ' << count;
  std::cout << '\n';
}

std::vector<Source> all_sources() {
  std::vector<Source> sources = read_house(TRIREME_SOURCE);
  for (Source& script : read_scripts(TRIREME_SOURCE)) sources.push_back(std::move(script));
  return sources;
}

struct Rule {
  std::string name;
  Problems problems;
};

std::vector<Rule> all_rules() {
  const std::vector<Source> pages = read_pages(TRIREME_SOURCE), sources = all_sources();
  return {{"pages", check_prose(pages)},
          {"words of pages", check_page_words(pages)},
          {"words of sources", check_source_words(sources)},
          {"openings of comments", check_openings(sources)}};
}

}  // namespace

TEST_CASE("the pages are written in short sentences and narrow lines", "[voice]") {
  CHECK(listed(check_prose(read_pages(TRIREME_SOURCE))) == "");
}

TEST_CASE("the pages use the words of the field", "[voice]") { CHECK(listed(check_page_words(read_pages(TRIREME_SOURCE))) == ""); }

TEST_CASE("comments, messages and help use the words of the field", "[voice]") {
  CHECK(listed(check_source_words(all_sources())) == "");
}

TEST_CASE("comments open with a noun or a verb", "[voice]") { CHECK(listed(check_openings(all_sources())) == ""); }

// ctest passes a test's name to its program, which takes one that begins with a dash for an option, and passes.
TEST_CASE("names of tests begin with no dash") {
  std::string dashed;
  for (const Source& source : all_sources()) {
    static const std::regex opening(R"~(TEST_CASE\(\s*"-)~");
    if (std::regex_search(source.text, opening)) dashed += source.path + "\n";
  }
  CHECK(dashed == "");
}

TEST_CASE("README.md and the pages of docs/ have runnable blocks", "[voice]") {
  std::vector<std::string> runnable;
  for (const Source& page : read_pages(TRIREME_SOURCE))
    if (page.text.find("\n```sh runnable\n") != std::string::npos) runnable.push_back(page.path);
  CHECK(std::count(runnable.begin(), runnable.end(), "README.md") == 1);
  CHECK(runnable.size() > 1);
}

TEST_CASE("the measure of each page and room is printed", "[.][measure]") {
  print_pages();
  for (const Rule& rule : all_rules()) print_rooms(rule.name, rule.problems);
}

TEST_CASE("every breach of the rules of language is printed", "[.][breaches]") {
  for (const Rule& rule : all_rules()) std::cout << listed(rule.problems);
}

TEST_CASE("the tree has pages to judge, README.md among them") {
  const std::vector<Source> pages = read_pages(TRIREME_SOURCE);
  const auto is_there = [&](const std::string& path) {
    return std::any_of(pages.begin(), pages.end(), [&](const Source& page) { return page.path == path; });
  };
  CHECK(is_there("README.md"));
  CHECK(is_there("ARCHITECTURE.md"));
  CHECK(is_there("docs/reliability.md"));
  CHECK(is_there("docs/gpu/README.md"));
  for (const Source& page : pages) CHECK(parse_page(page.text).words.size() > 20);
}

TEST_CASE("sentences end at full stops, list items and paragraphs, and not at abbreviations") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"One two. Three four five.\n", "2 3 "},
      {"One two.\nThree\nfour\n\nFive\n", "2 2 1 "},
      {"Such units, e.g. `a. b`, and others etc. are one. Two!\n", "9 1 "},
      {"lower case. h5py reads it. (Really.) \"Yes.\" No\n", "2 3 1 1 1 "},
      {"- one two\n- three\n  four. Five\n\n1. six\n2. seven\n", "2 2 1 1 1 "},
      {"`trireme train x.yaml` starts `1.5`. Next\n", "3 1 "},
      {"[two words](https://a.b/c. d) and ![no words](x.png) more\n", "4 "},
      {"# A heading of five words\n\n| a | row |\n|---|---|\n| b | c. d |\n\nOne.\n", "1 "},
      {"One\n```sh\nnot. a. sentence.\n```\nTwo\n", "1 1 "},
      {"<!-- hidden. words -->\nOne — two <br> 0.5 \\| x\n", "4 "},
      {"<!-- hidden\nwords.\n-->\nOne\n", "1 "},
      {"Version 1.2.3 is out... and used ... here.\n", "7 "},
  }));
  CAPTURE(text);
  CHECK(counts(text) == expected);
}

TEST_CASE("a sentence is found on its line, also after code and links that span lines") {
  const Page page = parse_page("# T\n\nOne `a\nb` two.\nThree [four\nfive](u) six. Seven\neight.\n");
  REQUIRE(page.sentences.size() == 3);
  CHECK(page.sentences[0].line == 3);
  CHECK(page.sentences[1].line == 5);
  CHECK(page.sentences[2].line == 6);
  CHECK(page.sentences[2].opening == "Seven eight.");
}

TEST_CASE("long sentences and long means are refused") {
  CHECK(prose(repeated("Word ", 16) + ".\n") == "");
  CHECK(prose(repeated("Word ", 15) + "end.\n\n" + repeated("word\n", 16)) == "");
  CHECK_THAT(prose(repeated("Word\n", 17)), ContainsSubstring("docs/x.md:1: 17.0 words a sentence; 16.0 are allowed"));
  CHECK_THAT(prose("One.\n\n" + repeated("word\n", 31)), ContainsSubstring("docs/x.md:3: 31 words; 30 are allowed: 'word word"));
  CHECK(prose("One.\n\n" + repeated("word\n", 30)) == "");
}

TEST_CASE("wide lines and cells are refused, links and code are not") {
  const std::string wide(101, 'x');
  CHECK(prose(std::string(100, 'x') + "\n") == "");
  CHECK(prose(repeated("\u00e9", 100) + "\n") == "");
  CHECK_THAT(prose("A\nb " + wide + "\n"), ContainsSubstring("docs/x.md:2: a line of 103 columns; 100 are allowed"));
  CHECK_THAT(prose("See [it](" + wide + ")\n"), ContainsSubstring("a line of 111 columns"));
  CHECK_THAT(prose("## a " + wide + "\n"), ContainsSubstring("a line of 106 columns"));
  CHECK(prose("[see it](" + wide + ").\n- [it](" + wide + ")\n[![a b](" + wide + ")](x) [it](y)\n[x]: " + wide + "\n") == "");
  CHECK(prose("```\nx " + wide + "\n```\n<img src=\"x\" alt=\"" + wide + "\">\n") == "");
  CHECK_THAT(prose("| a | b |\n|---|---|\n| x | " + std::string(61, 'y') + " |\n"),
             ContainsSubstring("docs/x.md:3: a cell of 61 columns; 60 are allowed"));
  CHECK(prose("| `" + std::string(60, 'y') + "` | [it](" + wide + ") | `a \\| b|c` |\n") == "");
}

TEST_CASE("the README has at most 120 lines, other pages any number") {
  CHECK(prose(repeated("\n", 120), "README.md") == "");
  CHECK_THAT(prose(repeated("\n", 121), "README.md"), ContainsSubstring("README.md:121: 121 lines; 120 are allowed"));
  CHECK(prose(repeated("\n", 500)) == "");
}

TEST_CASE("phrases outside of plain technical English are refused in pages") {
  const auto phrase = GENERATE(as<std::string>{}, "tells", "is told", "goes on", "are alike", "is on its way", "get on no more",
                               "stands twice", "is no number", "the bytes behind it", "of 8 bits");
  CAPTURE(phrase);
  CHECK_THAT(page_words("One.\n\nA rank " + phrase + " here.\n"), ContainsSubstring("docs/x.md:3: '"));
  CHECK_THAT(page_words("| a |\n| the rank " + phrase + " |\n"), ContainsSubstring("docs/x.md:2: '"));
  CHECK_THAT(page_words("- See\n  [it " + phrase + "](y)\n"), ContainsSubstring("docs/x.md:2: '"));
  CHECK_THAT(page_words("```sh\nmake # it " + phrase + "\n```\n"), ContainsSubstring("docs/x.md:2: '"));
  CHECK_THAT(page_words("# It " + phrase + "\n"), ContainsSubstring("docs/x.md:1: '"));
}

TEST_CASE("phrases are refused where a line breaks in them") {
  CHECK_THAT(page_words("One.\n\nThe run goes\non.\n"),
             ContainsSubstring("docs/x.md:3: 'goes on' in 'one the run goes on': say continues"));
  CHECK_THAT(page_words("- This stands\n  twice.\n"), ContainsSubstring("docs/x.md:1: 'stands twice'"));
}

TEST_CASE("the same words are left alone where they mean something else") {
  const auto text = GENERATE(as<std::string>{}, "There is no GPU.", "It is no longer ours.", "Nothing is left behind.",
                             "It leaves nothing at all behind.", "Messages hide behind backward.", "Behind the door stands one.",
                             "`tell` and tell() are code.", "```\nit tells alike\n```", "Go. On a GPU.", "It is. No.",
                             "<!-- it tells -->", "Let it go, on any mesh.", "| it is | no GPU |", "foretold storytellers");
  CAPTURE(text);
  CHECK(page_words(text + "\n") == "");
}

TEST_CASE("phrases are refused in comments, messages and names of tests, and left alone in code") {
  CHECK_THAT(source_words("int a;\n// A rank\n// tells it.\n"),
             ContainsSubstring("model/x.cpp:3: 'tells' in 'a rank tells it': say reports"));
  CHECK_THAT(source_words("int a;  // goes\n        // on\n"), ContainsSubstring("model/x.cpp:1: 'goes on'"));
  CHECK_THAT(source_words("/* one\n   told */\n"), ContainsSubstring("model/x.cpp:2: 'told'"));
  CHECK_THAT(source_words("f(\"a rank is\"\n  \" no number\");\n"), ContainsSubstring("model/x.cpp:1: 'is no'"));
  CHECK_THAT(source_words("auto h = R\"(one\nis told)\";\n"), ContainsSubstring("model/x.cpp:2: 'told'"));
  CHECK_THAT(source_words("TEST_CASE(\"a rank is told\") {\n", "test/model/x_test.cpp"), ContainsSubstring("x_test.cpp:1: 'told'"));
  CHECK(source_words("int told = tell(\"is\", no);\nf(\"it is\", x, \"no\");\ng(\"is\\nno\");\n#include \"told\"\n") == "");
  CHECK(source_words("f(\"she told\");\n", "test/model/x_test.cpp") == "");
}

TEST_CASE("comments that begin with a relative word are refused") {
  const auto word = GENERATE(as<std::string>{}, "Of", "What", "Where", "That", "of", "where");
  CAPTURE(word);
  CHECK_THAT(openings("int a;\n// " + word + " a rank\n"), ContainsSubstring("model/x.cpp:2: a comment begins with a noun"));
  CHECK_THAT(openings("/// " + word + ": a rank\n"), ContainsSubstring("model/x.cpp:1: "));
  CHECK(openings("// A rank\n// " + word + " a mesh\nint a;  // one\n        // " + word + " these\n") == "");
}

TEST_CASE("comments of scripts, YAML and CMake are held to the same words") {
  const std::string script = "#!/bin/sh told\n# Where it is\n# told.\n\nx=${#told}  # of it\n# and more\necho told\n";
  CHECK_THAT(openings(script, "scripts/x.sh"), ContainsSubstring("scripts/x.sh:2: a comment begins with a noun"));
  CHECK_THAT(source_words(script, "scripts/x.sh"), ContainsSubstring("scripts/x.sh:3: 'told' in"));
  CHECK(check_source_words({{"scripts/x.sh", script}}).size() == 1);
  CHECK(check_openings({{"scripts/x.sh", script}}).size() == 1);
  CHECK_THAT(source_words("a: 1  # it tells\n", "configs/x.yaml"), ContainsSubstring("configs/x.yaml:1: 'tells'"));
  CHECK(read_scripts(TRIREME_SOURCE).size() > 30);
}

TEST_CASE("comments after code may be phrases, and words may begin with the same letters") {
  CHECK(openings("int a;  // of one rank\nint b;  // where it is known\n// Offsets.\nint c;\n// Whatever.\n") == "");
  CHECK_THAT(openings("int a;  // Of one rank\n"), ContainsSubstring("not 'Of'"));
}

TEST_CASE("headers open with a short sentence that names what they hold") {
  CHECK(openings("// Detects NaN in tensors.\n", "model/x.h") == "");
  CHECK_THAT(openings("// Whether numbers are numbers.\n", "model/x.h"), ContainsSubstring("model/x.h:1: a header opens"));
  CHECK_THAT(openings("// " + repeated("word ", 26) + "\n", "model/x.h"), ContainsSubstring("a sentence of 26 words"));
  CHECK(openings("// " + repeated("word ", 26) + "\n// Whether.\n", "model/x.cpp") == "");
}
