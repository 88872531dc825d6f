// The page of `trireme watch`, whose files lie beside this one: watch_page.html and watch_page.js, with the style of report.html.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Texts of the files, which the build puts into a source of its own.
std::string_view watch_page_html();
std::string_view watch_page_js();

// One page that needs nothing else.
std::string watch_page();

}  // namespace trireme
