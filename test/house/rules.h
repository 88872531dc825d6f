// Checks of the source tree: arrows between rooms, hosts of foreign libraries, refused words, names, language.
// A rule takes files as (path, text) and reads nothing from the disk, so that tests can plant a broken file.
#pragma once

#include <string>
#include <vector>

#include "test/house/page.h"
#include "test/house/source.h"

namespace trireme::house {

// One line per breach, "model/block.h:12: ..."; empty if there is none.
using Problems = std::vector<std::string>;

// Includes of rooms, floors and foreign libraries; circular includes.
Problems check_arrows(const std::vector<Source>& sources);
// Words and directives allowed in one file or none: output, environment, preprocessor, owners, exits, open ends.
Problems check_words(const std::vector<Source>& sources);
// Names of files, tests and types; first lines of headers; width of lines.
Problems check_names(const std::vector<Source>& sources);
// ARCHITECTURE.md names every room and inner room, and no missing file, between backquotes or in code blocks.
Problems check_page(const std::vector<Source>& sources, const std::string& page);

// Limits on pages: lines of 100 columns, cells of 60, sentences of 30 words and 16 on average; README.md has 120 lines.
Problems check_prose(const std::vector<Source>& pages);
double mean_words(const Page& page);  // words a sentence
// Phrases that are not plain technical English, each with a better one. Sources: comments, also of scripts; names of tests; string
// literals of the rooms, which are messages and `--help`.
Problems check_page_words(const std::vector<Source>& pages);
Problems check_source_words(const std::vector<Source>& sources);
// First words of comments and first sentences of headers.
Problems check_openings(const std::vector<Source>& sources);

}  // namespace trireme::house
