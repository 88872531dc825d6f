#include "train/telemetry/watch_page.h"

#include "base/error.h"
#include "train/telemetry/report_page.h"

namespace trireme {
namespace {

void put_in_place(std::string& page, std::string_view mark, std::string_view text) {
  const size_t at = page.find(mark);
  require(at != std::string::npos, trireme::text("the page has no ", mark));
  page.replace(at, mark.size(), text);
}

}  // namespace

std::string watch_page() {
  std::string page(watch_page_html());
  put_in_place(page, "/*REPORT_STYLE*/", kReportStyle);
  put_in_place(page, "/*SCRIPT*/", watch_page_js());
  return page;
}

}  // namespace trireme
