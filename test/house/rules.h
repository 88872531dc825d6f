// The rules of the house, held against source files: the arrows between the rooms, the hosts of foreign libraries, and what is
// refused. A rule gets files as (path, text) and not from the disk, so that the tests can plant a broken one.
#pragma once

#include <string>
#include <vector>

#include "test/house/page.h"
#include "test/house/source.h"

namespace trireme::house {

// One line per breach, "model/block.h:12: ..."; empty when the house is in order.
using Problems = std::vector<std::string>;

// Which room, floor or foreign library a file includes; circles of includes.
Problems check_arrows(const std::vector<Source>& sources);
// Words and directives that have one place or none: output, environment, preprocessor, owners, exits, open ends.
Problems check_words(const std::vector<Source>& sources);
// Files' names, headers' first lines, width of lines, names of tests, and of types in headers.
Problems check_names(const std::vector<Source>& sources);
// ARCHITECTURE.md names every room, inner ones too, and no file that is not there: between backquotes or in blocks of code.
Problems check_page(const std::vector<Source>& sources, const std::string& page);

// The language of pages and sources, below. Lines of pages have at most 100 columns, cells 60, sentences 30 words and 16 in the
// mean; README.md has at most 120 lines.
Problems check_prose(const std::vector<Source>& pages);
double mean_words(const Page& page);  // a sentence
// Phrases that plain technical English does not have, with the better one: in pages; in comments, names of tests, and in the
// literals of the rooms, which are messages and `--help`.
Problems check_page_words(const std::vector<Source>& pages);
Problems check_source_words(const std::vector<Source>& sources);
// First words of comments, and the first sentence of each header.
Problems check_openings(const std::vector<Source>& sources);

}  // namespace trireme::house
