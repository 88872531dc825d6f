#include "train/telemetry/report.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <thread>

#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/axis_ticks.h"
#include "train/telemetry/chart.h"
#include "train/telemetry/report_sections.h"

using namespace trireme;

namespace {

// The first thing that is wrong with the page's tags; empty when each one closes in order.
std::string first_flaw(const std::string& html) {
  const std::set<std::string> empty{"meta", "!doctype"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "an open bracket at " + html.substr(at, 40);
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "a bracket inside " + tag;
    if (count_of(tag, "\"") % 2 != 0) return "an open quote in " + tag;
    at = end;
    const bool closes = tag.front() == '/', closed = tag.back() == '/';
    const std::string name = tag.substr(closes, tag.find_first_of(" />", closes) - closes);
    if (closes) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (!closed && !empty.contains(name)) {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name + ">", at);
    }
  }
  return open.empty() ? "" : "open at the end: " + open.back();
}

ReportData data_of(int64_t steps, int64_t total) {
  ReportData data;
  data.title = "run";
  data.total_steps = total;
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = 2 + 8 * std::exp(-static_cast<double>(step) / 50) + 0.1 * std::sin(static_cast<double>(step) * 12.9898);
    data.add(StepRecord{
        .step = step, .loss = loss, .grad_norm = 1, .lr = 1e-3, .tokens = step * 64, .step_ms = 10, .tokens_per_second = 6400});
    if (step % 50 == 0)
      data.add(EvalRecord{.step = step, .val_loss = loss, .bits_per_byte = loss / 3, .val_tokens = 10, .seconds = 1});
  }
  return data;
}

}  // namespace

TEST_CASE("a report is well-formed at any length of the run") {
  for (const int64_t steps : {0, 1, 2, 3, 19, 20, 700, 1025, 5000}) {
    INFO(steps << " steps");
    const std::string html = render_report(data_of(steps, 5000));
    CHECK(first_flaw(html) == "");
    CHECK(count_of(html, "<svg") == (steps < 50 ? 4 : 5));
    CHECK(html.find("nan") == std::string::npos);
    CHECK(html.find("inf") == std::string::npos);
    for (const char* foreign : {"http:", "https:", "src=", "<link", "@import", "url("}) CHECK(count_of(html, foreign) == 0);
  }
}

TEST_CASE("the well-formedness check sees flaws") {
  CHECK(first_flaw("<p>a</p>") == "");
  CHECK(first_flaw("<p><b>a</p></b>") != "");
  CHECK(first_flaw("<p>a") != "");
  CHECK(first_flaw("<p class=\"a>b</p>") != "");
}

TEST_CASE("everything that a user wrote is escaped in the report") {
  ReportData data = data_of(100, 100);
  const std::string evil = "</title><script>alert('x')</script>&\"";
  data.title = data.config = data.updated = evil;
  data.facts = {{evil, evil}};
  const std::string html = render_report(data);
  CHECK(first_flaw(html) == "");
  CHECK(html.find("<script>alert") == std::string::npos);
  CHECK(count_of(html, html_escaped(evil)) == 7);
  CHECK(html_escaped("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
}

TEST_CASE("the page refreshes itself only while the run continues") {
  ReportData data = data_of(10, 20);
  CHECK(count_of(render_report(data), "http-equiv=\"refresh\"") == 1);
  for (const RunStatus over : {RunStatus::finished, RunStatus::stopped}) {
    data.status = over;
    CHECK(count_of(render_report(data), "http-equiv=\"refresh\"") == 0);
  }
}

TEST_CASE("a series keeps extremes, counts and means in bounded memory") {
  DownsampledCurve series(64);
  double sum = 0;
  for (int64_t x = 1; x <= 100000; ++x) {
    const double y = x == 77777 ? 50.0 : x == 3 ? -50.0 : std::sin(static_cast<double>(x));
    sum += y;
    series.add(x, y);
  }
  REQUIRE(series.bins().size() <= 64);
  CHECK(series.bins().size() > 32);
  double total = 0, lowest = 0, highest = 0;
  int64_t count = 0, lowest_x = 0, highest_x = 0, previous = 0;
  for (const DownsampledCurve::Bin& bin : series.bins()) {
    CHECK(bin.first_x == previous + 1);
    previous = bin.last_x;
    total += bin.sum;
    count += bin.count;
    if (bin.min < lowest) lowest = bin.min, lowest_x = bin.min_x;
    if (bin.max > highest) highest = bin.max, highest_x = bin.max_x;
  }
  CHECK(previous == 100000);
  CHECK(count == 100000);
  CHECK(total == Approx(sum));
  CHECK(lowest == -50);
  CHECK(lowest_x == 3);
  CHECK(highest == 50);
  CHECK(highest_x == 77777);
  CHECK(series.last() == std::sin(100000.0));
}

TEST_CASE("a short series is kept point by point, and repeated steps share a bin") {
  DownsampledCurve series;
  for (const int64_t x : {0, 5, 7, 7, 1000000}) series.add(x, static_cast<double>(x));
  REQUIRE(series.bins().size() == 4);
  CHECK(series.bins()[2].count == 2);
  CHECK(series.bins()[3].last_x == 1000000);
}

TEST_CASE("smoothing leaves a straight line alone, to its very ends, and reduces noise") {
  DownsampledCurve line, noisy;
  for (int64_t x = 0; x < 200; ++x) {
    line.add(x, 3 - 0.5 * static_cast<double>(x));
    noisy.add(x, x % 2 == 0 ? 1 : -1);
  }
  const std::vector<double> same = smoothed(line.bins(), 5), calm = smoothed(noisy.bins(), 5);
  for (size_t i = 0; i < 200; ++i) CHECK(same[i] == Approx(3 - 0.5 * static_cast<double>(i)).margin(1e-9));
  for (size_t i = 20; i < 180; ++i) CHECK(std::abs(calm[i]) < 0.01);
}

TEST_CASE("values that are not finite leave gaps in the curve, and are counted") {
  DownsampledCurve series;
  for (int64_t x = 0; x < 10; ++x)
    series.add(x, x == 4 || x == 5 ? NAN : x == 8 ? std::numeric_limits<double>::infinity() : 1.0 + static_cast<double>(x));
  CHECK(series.gaps() == 3);
  const Chart chart{.title = "t", .unit = "u", .curves = {{.name = "c", .color = "train", .look = Look::line, .series = &series}}};
  const std::string html = render_chart(chart, 9);
  CHECK(first_flaw(html) == "");
  const size_t begin = html.find("<path class=\"line train\"");
  REQUIRE(begin != std::string::npos);
  const std::string path = html.substr(begin, html.find("/>", begin) - begin);
  CHECK(count_of(path, "M") == 3);  // 0-3, 6-7, 9
  CHECK(count_of(path, "L") == 4);
  CHECK(count_of(html, "3 not finite") == 1);
  CHECK(count_of(html, "null") == 3);

  DownsampledCurve nothing;
  nothing.add(1, NAN);
  const Chart empty{
      .title = "t", .unit = "u", .curves = {{.name = "c", .color = "train", .look = Look::noisy, .series = &nothing}}};
  const std::string page = render_chart(empty, 1);
  CHECK(first_flaw(page) == "");
  CHECK(count_of(page, "class=\"y\"") == 0);  // no scale without a value
  CHECK(nothing.empty());
}

TEST_CASE("gaps survive when bins merge") {
  DownsampledCurve series(8);
  for (int64_t x = 0; x < 1000; ++x) series.add(x, x == 500 ? NAN : 1.0);
  int64_t gaps = 0, count = 0;
  for (const DownsampledCurve::Bin& bin : series.bins()) gaps += bin.gaps, count += bin.count;
  CHECK(gaps == 1);
  CHECK(count == 999);
}

TEST_CASE("ticks are round numbers inside the range") {
  CHECK(nice_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(nice_ticks(1.9, 9.1, 4) == std::vector<double>{2, 4, 6, 8});
  for (const double size : {1e-9, 3.7e-4, 1.0, 77.0, 123456.0, 9e15}) {
    const std::vector<double> ticks = nice_ticks(0.3 * size, 1.7 * size, 5);
    CHECK(ticks.size() >= 3);
    CHECK(ticks.size() <= 9);
    CHECK(ticks.front() >= 0.3 * size * 0.999999);
    CHECK(ticks.back() <= 1.7 * size * 1.000001);
  }
}

TEST_CASE("tick labels share one unit and differ from each other") {
  using Labels = std::vector<std::string>;
  CHECK(tick_labels({0, 200, 400}) == Labels{"0", "200", "400"});
  CHECK(tick_labels({0, 5000, 10000}) == Labels{"0", "5k", "10k"});
  CHECK(tick_labels({0, 500000, 1000000}) == Labels{"0", "0.5M", "1.0M"});
  CHECK(tick_labels({0, 2e-4, 4e-4}) == Labels{"0", "2e-4", "4e-4"});
  CHECK(tick_labels({2.5, 3, 3.5}) == Labels{"2.5", "3.0", "3.5"});
  CHECK(tick_labels({2.38, 2.39, 2.4}) == Labels{"2.38", "2.39", "2.40"});
  CHECK(tick_labels({}).empty());
}

TEST_CASE("a spike or the first steps do not flatten the picture, and still show their values under the pointer") {
  DownsampledCurve series;
  for (int64_t x = 1; x <= 1000; ++x) series.add(x, x == 400 ? 1e6 : 1 + 0.001 * static_cast<double>(x));
  const Chart chart{.title = "t", .unit = "u", .curves = {{.name = "c", .color = "train", .look = Look::line, .series = &series}}};
  const std::string html = render_chart(chart, 1000);
  const size_t at = html.find("\"y\":[");
  double low = 0, high = 0;
  REQUIRE(std::sscanf(html.c_str() + at, "\"y\":[%lf,%lf]", &low, &high) == 2);
  CHECK(low < 1.01);
  CHECK(low > 0);
  CHECK(high > 2);
  CHECK(high < 3);
  CHECK(html.find("1e+06") != std::string::npos);
  CHECK(count_of(html, "<path class=\"beyond\" d=\"M400.0 0.0v12\"/>") == 1);  // the spike's place on the frame
  CHECK(count_of(html, "<span class=\"beyond\">up to 1M</span>") == 1);
}

TEST_CASE("a picture that holds all points has no marks on its frame") {
  DownsampledCurve series;
  for (int64_t x = 1; x <= 100; ++x) series.add(x, static_cast<double>(x));
  const Chart chart{.title = "t", .unit = "u", .curves = {{.name = "c", .color = "train", .look = Look::line, .series = &series}}};
  CHECK(render_chart(chart, 100).find("beyond") == std::string::npos);
}

TEST_CASE("a run that was continued with a smaller train.steps is not at step 40 of 10") {
  const std::string html = render_report(data_of(40, 10));
  CHECK_THAT(html, ContainsSubstring("<dt>step</dt><dd>40</dd><dd class=\"below\">train.steps is 10</dd>"));
  CHECK_THAT(render_report(data_of(7, 10)), ContainsSubstring("<dt>step</dt><dd>7</dd><dd class=\"below\">of 10</dd>"));
}

TEST_CASE("MFU is a figure of the report where the peak is known") {
  ReportData data = data_of(7, 10);
  data.mfu = 0.2613;
  CHECK_THAT(render_report(data), ContainsSubstring("<dt>MFU</dt><dd>26.1%</dd><dd class=\"below\">of the peak rate</dd>"));
  data.mfu = NAN;
  CHECK_THAT(render_report(data), !ContainsSubstring("MFU"));
}

TEST_CASE("a million steps make a small page quickly", "[unsanitized]") {
  const std::clock_t begin = std::clock();
  const std::string html = render_report(data_of(1000000, 1000000));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(html.size() < 1500000);
  CHECK(seconds < 2);  // 0.2 on two cores of an AMD EPYC
  CHECK(first_flaw(html) == "");
}

TEST_CASE("best, last and elapsed figures follow the records") {
  ReportData data = data_of(200, 400);
  CHECK(data.step == 200);
  CHECK(data.tokens == 200 * 64);
  CHECK(data.elapsed == Approx(200 * 0.010 + 4));
  CHECK(data.best.step > 50);
  data.add(EvalRecord{.step = 201, .val_loss = 0.5, .bits_per_byte = NAN});
  data.add(EvalRecord{.step = 202, .val_loss = NAN, .bits_per_byte = NAN});
  data.add(EvalRecord{.step = 203, .val_loss = 0.6, .bits_per_byte = NAN});
  CHECK(data.best.step == 201);
  CHECK(data.bits_per_byte.bins().size() == 4);
}

TEST_CASE("the report's thread rewrites the page while records arrive, and the last page has them all") {
  const Scratch directory;
  std::ofstream(directory / "config.yaml") << "a: <1>\n";
  {
    Report report(directory.path(), data_of(0, 3000), std::chrono::milliseconds(2));
    CHECK(first_flaw(read_text(report.path())) == "");
    report.facts({{"parameters", "6M"}});
    std::set<std::string> pages;
    for (int64_t step = 1; step <= 3000; ++step) {
      const StepRecord record{
          .step = step, .loss = 3, .grad_norm = 1, .lr = 1e-3, .tokens = step, .step_ms = 1, .tokens_per_second = 1000};
      report.add(record, record, 5);
      if (step % 30 == 0) {
        report.add(EvalRecord{.step = step, .val_loss = 3, .bits_per_byte = 1, .val_tokens = 1, .seconds = 0.1});
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::string page = read_text(report.path());
        REQUIRE(page.ends_with("</html>\n"));  // never a part of a page
        pages.insert(page);
      }
    }
    CHECK(pages.size() > 2);
    report.finish();
    const std::string page = read_text(report.path());
    CHECK(first_flaw(page) == "");
    CHECK(page.find("class=\"status finished\"") != std::string::npos);
    CHECK(page.find("<dd>3,000</dd>") != std::string::npos);
    CHECK(page.find("a: &lt;1&gt;") != std::string::npos);
    CHECK(page.find("6M") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(directory / "report.html.tmp"));
}

TEST_CASE("a run that has started again is not shown with the end of an earlier attempt") {
  RunPicture run;
  run.starts = {RunStart{.time = 100}, RunStart{.time = 300}};
  run.exit = {.code = 71, .cause = "hang", .host = "", .message = "rank 2 hung", .time = 200};
  const auto outcome = [&](RunState state) {
    run.state = state;
    std::string words;
    for (const auto& section : report_of(run).sections)
      if (section.title == "Outcome")
        for (const auto& row : section.rows) words += row.at(0) + ": " + row.at(1) + "\n";
    return words;
  };
  for (const RunState alive : {RunState::running, RunState::silent})
    CHECK_THAT(outcome(alive), ContainsSubstring("starts: 2\n") && !ContainsSubstring("end: ") && !ContainsSubstring("code 71"));
  CHECK_THAT(outcome(RunState::failed), ContainsSubstring("end: 1970-01-01 00:03:20 UTC\n") &&
                                            ContainsSubstring("end of the run: code 71, hang: rank 2 hung\n"));
}

TEST_CASE("a run that ends before its last step is shown as stopped") {
  const Scratch directory;
  { Report report(directory.path(), data_of(7, 10)); }
  const std::string page = read_text(directory / "report.html");
  CHECK(page.find("class=\"status stopped\"") != std::string::npos);
}
