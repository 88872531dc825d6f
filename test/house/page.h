// Markdown pages as a reader sees them: sentences, lines of prose and cells of tables.
#pragma once

#include <string>
#include <vector>

#include "test/house/prose.h"
#include "test/house/source.h"

namespace trireme::house {

struct Width {
  int line = 0;
  int columns = 0;
};

struct Page {
  std::vector<Sentence> sentences{};  // in paragraphs and list items; headings and tables have none
  std::vector<Width> lines{};         // prose only; a line that is one link or one HTML element is left out
  std::vector<Width> cells{};         // visible text, without the targets of links
  std::vector<Word> words{};          // in prose, headings, tables and the shell comments of code blocks
  int line_count = 0;
};

// README.md, the other pages at the root that exist, and docs/**/*.md.
std::vector<Source> read_pages(const std::string& root);

Page parse_page(const std::string& markdown);

}  // namespace trireme::house
