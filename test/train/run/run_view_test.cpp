// A run seen from its files alone: as JSON, as text, as a report.
#include "train/run/run_view.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/report.h"
#include "train/telemetry/report_sections.h"
#include "train/telemetry/watch_json.h"
#include "train/telemetry/watch_page.h"
#include "train/telemetry/watch_text.h"

using namespace trireme;

namespace {

constexpr auto kAll = std::chrono::hours(1);

std::string step_line(int64_t step, double loss) {
  return Json{{"step", step},        {"loss", loss},
              {"grad_norm", 0.5},    {"lr", 0.001},
              {"tokens", step * 64}, {"step_ms", 10},
              {"data_ms", 0},        {"tokens_per_second", 6400},
              {"mfu", nullptr},      {"parts_ms", {{"forward", 4}, {"backward", 6}}}}
             .dump() +
         "\n";
}

// A made-up run of 40 steps, with saves, a spike and a straggler, which was started twice and killed.
struct MadeRun {
  Scratch scratch;
  std::string metrics = scratch / "metrics.jsonl";
  MadeRun() {
    std::string text;
    for (int64_t step = 1; step <= 40; ++step) {
      text += step_line(step, 4 - 0.05 * static_cast<double>(step));
      if (step == 20) text += Json{{"step", step}, {"val_loss", 3.125}, {"bits_per_byte", 1.5}, {"seconds", 1}}.dump() + "\n";
      if (step == 30) text += "{\"step\": 30, \"event\": \"spike\", \"since\": 30}\n";
      if (step == 32) text += R"({"step": 32, "slowest_rank": 2, "slowest_ratio": 1.5, "busy_ms": [9.5, 9.5, 14.25, 9.5]})"
                                "\n";
      if (step == 33)
        text +=
            "{\"step\": 33, \"event\": \"straggler\", \"since\": 1, \"rank\": 2, \"host\": \"node-<b>\", \"text\": \"is slow\"}\n";
    }
    write_text(metrics, text + "{\"step\": 41, \"lo");  // torn by a kill
    write_text(scratch / "starts.jsonl",
               "{\"time\": 1700000000.5, \"step\": 0, \"ranks\": 4, \"run\": \"r\"}\n"
               "{\"time\": 1700000100, \"step\": 10, \"ranks\": 4, \"run\": \"r\", \"version\": \"9.9\"}\n");
    write_text(
        scratch / "exit.json",
        "{\"code\": 71, \"cause\": \"hang\", \"rank\": 2, \"host\": \"node-7\", \"step\": 40, \"message\": \"rank 2 hung\"}");
    write_text(scratch / "log.txt", "2026-01-01T00:00:00Z  made: 1M parameters\n2026-01-01T00:00:01Z  step 1/40  loss 4\n");
  }
};

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

}  // namespace

TEST_CASE("the view of a made-up run knows its steps, events, starts and verdict") {
  const MadeRun made;
  RunView view(made.scratch.path());
  const RunPicture& run = view.update(kAll);
  CHECK(run.state == RunState::failed);
  CHECK(run.history.last.step == 40);
  CHECK(run.history.last.loss == Approx(2));
  CHECK(run.starts.size() == 2);
  CHECK(run.exit.cause == "hang");
  CHECK(run.history.count("spike") == 1);
  CHECK(run.history.count("restart") == 1);
  CHECK(run.history.count("verdict") == 1);
  CHECK(run.goodput() > 0);
  REQUIRE_FALSE(run.environment.empty());
  CHECK(run.environment.front() == std::pair<std::string, std::string>("version", "9.9"));
  CHECK(run.environment.back().second == "made: 1M parameters");
  view.update(kAll);
  CHECK(run.history.count("restart") == 1);  // a second look adds nothing
  CHECK(run.history.count("verdict") == 1);
}

TEST_CASE("a directory of something else is refused in one line, and a run without lines is not") {
  const Scratch empty;
  CHECK_THROWS_WITH(
      RunView(empty.path()),
      Catch::Matchers::Equals(empty.path() +
                              ": is not the directory of a run: it has neither metrics.jsonl nor config.yaml; name runs/NAME"));
  CHECK_THROWS_AS(RunView(empty / "absent"), DataError);
  write_text(empty / "file", "x");
  CHECK_THROWS_WITH(RunView(empty / "file"), ContainsSubstring("is not a directory"));
  write_text(empty / "run.id", "0123456789abcdef\n");
  RunView begun(empty.path());
  CHECK(begun.update(kAll).history.last.step == 0);
  const std::string text = joined_lines(watch_lines(begun.picture(), {}));
  CHECK_THAT(text, ContainsSubstring("no step so far") && ContainsSubstring("no checkpoint on disk"));
  CHECK(Json::parse(watch_json(begun.picture(), {}))["steps"].is_null());
}

TEST_CASE("answers hold what is newer than the page has seen, and all after the file was replaced") {
  const MadeRun made;
  RunView view(made.scratch.path());
  const Json first = Json::parse(watch_json(view.update(kAll), {}));
  CHECK(first["whole"] == true);
  CHECK(first["step"] == 40);
  CHECK(first["last"]["val_loss"] == 3.125);
  CHECK(first["exit"]["message"] == "rank 2 hung");
  CHECK(first["curves"]["loss"]["bins"].size() == 40);
  CHECK(first["curves"]["part/forward"]["bins"][0][1] == 4);
  CHECK(first["busy"]["columns"][0][2][2] == 14.25);
  CHECK(first["slowest"]["rank"] == 2);
  CHECK(first["slowest"]["ratio"] == 1.5);
  CHECK(first["events"].size() == 4);
  CHECK(first["parts_ms"]["backward"] == 240);

  std::ofstream(made.metrics, std::ios::app) << "ss\": 1}\n"
                                             << step_line(42, 1.5) << "{\"step\": 42, \"event\": \"not_finite\", \"since\": 42}\n";
  const Json second = Json::parse(watch_json(view.update(kAll), parse_seen(first["next"].string())));
  CHECK(second["whole"] == false);
  CHECK(second["curves"]["loss"]["bins"].size() == 3);  // the last one that was seen may have grown
  CHECK(second["curves"]["loss"]["bins"][1][1] == 1);   // the line that was torn
  CHECK(second["curves"]["loss"]["bins"][2][1] == 1.5);
  CHECK_FALSE(second.contains("config"));
  REQUIRE(second["events"].size() == 1);
  CHECK(second["events"][0]["event"] == "not_finite");
  const Json third = Json::parse(watch_json(view.update(kAll), parse_seen(second["next"].string())));
  CHECK(third["events"].empty());

  write_text(made.metrics + ".tmp", step_line(1, 9));  // a resume
  std::filesystem::rename(made.metrics + ".tmp", made.metrics);
  const Json anew = Json::parse(watch_json(view.update(kAll), parse_seen(third["next"].string())));
  CHECK(anew["whole"] == true);
  CHECK(anew["step"] == 1);
  CHECK(anew["curves"]["loss"]["bins"].size() == 1);
}

TEST_CASE("a position that no answer gave stands for a page that has seen nothing") {
  for (const char* words : {"", "x", "1", "1/2", "1/2/", "1/2/x", "1/2/3/4", "-1/2/3", "1//2", "99999999999999999999/1/1"})
    CHECK(parse_seen(words).generation == -1);
  const SeenRun seen = parse_seen("3/1000/7");
  CHECK((seen.generation == 3 && seen.step == 1000 && seen.events == 7));
}

TEST_CASE("answers about a long run are small, and bins of other widths fit together") {
  const Scratch scratch;
  std::string text;
  for (int64_t step = 1; step <= 5000; ++step) text += step_line(step, 2 + std::sin(static_cast<double>(step)));
  write_text(scratch / "metrics.jsonl", text);
  RunView view(scratch.path());
  const Json whole = Json::parse(watch_json(view.update(kAll), {}));
  const Json& loss = whole["curves"]["loss"];
  CHECK(loss["width"] == 8);
  CHECK(loss["bins"].size() <= 1024);
  int64_t next = 1;
  for (const Json& bin : loss["bins"]) {
    CHECK(bin[0] == next);
    if (bin.size() == 2) {  // of one step
      ++next;
      continue;
    }
    next = bin[1].get<int64_t>() + 1;
    CHECK(bin[2] <= bin[4]);
    CHECK(bin[4] <= bin[3]);
  }
  CHECK(next == 5001);
  const std::string update = watch_json(view.update(kAll), parse_seen(whole["next"].string()));
  CHECK(update.size() < 4000);
}

TEST_CASE("the text of a run fits its terminal, in blocks or in ASCII, and shows foreign text harmlessly") {
  const MadeRun made;
  write_text(made.scratch / "exit.json", "{\"code\": 71, \"cause\": \"hang\", \"message\": \"a\\u001b[2Jb\"}");
  RunView view(made.scratch.path());
  const RunPicture& run = view.update(kAll);
  const std::string text = joined_lines(watch_lines(run, {.width = 90, .height = 40, .unicode = true}));
  CHECK_THAT(text, ContainsSubstring("failed") && ContainsSubstring("loss        2.0000") && ContainsSubstring("█"));
  CHECK_THAT(text, ContainsSubstring("10ms a step: 60% backward, 40% forward"));
  CHECK_THAT(text, ContainsSubstring("4 busy 9.50ms, slowest 2, +50% over its peers"));
  CHECK_THAT(text, ContainsSubstring("step 30  spike") && ContainsSubstring("rank 2 (node-<b>): is slow"));
  CHECK_THAT(text, ContainsSubstring("step 10  restart  started again after step 10, 4 ranks"));
  CHECK(text.find('\x1b') == std::string::npos);
  for (const int width : {20, 40, 80, 200})
    for (const int height : {1, 5, 12, 50}) {
      const std::vector<std::string> lines = watch_lines(run, {.width = width, .height = height, .unicode = false});
      CHECK(std::ssize(lines) <= height);
      for (const std::string& line : lines) {
        INFO(line);
        CHECK(std::ssize(line) <= width);
        for (const char c : line) CHECK((c >= ' ' && c < '\x7f'));
      }
    }
}

TEST_CASE("a sparkline rises with its curve and leaves gaps") {
  DownsampledCurve curve;
  for (int64_t x = 0; x < 8; ++x) curve.add(x, static_cast<double>(x));
  CHECK(sparkline(curve, 8, true) == "▁▂▃▄▅▆▇█");
  CHECK(sparkline(curve, 8, false) == "_.-=+*#@");
  CHECK(sparkline(curve, 4, false).size() == 4);
  CHECK(sparkline(DownsampledCurve(), 10, true).empty());
  DownsampledCurve gaps;
  for (const double y : {1.0, std::nan(""), 2.0}) gaps.add(gaps.gaps() + std::ssize(gaps.bins()), y);
  CHECK(sparkline(gaps, 10, false) == "_ @");
}

TEST_CASE("the report of a directory has curves, goodput, parts, incidents and the environment, escaped") {
  const MadeRun made;
  write_text(made.scratch / "metrics.jsonl",
             read_text(made.metrics) + "\n{\"step\": 40, \"kwh\": 1.25, \"co2_g\": 500, \"cost\": 3.5, \"currency\": \"EUR\"}\n");
  RunView view(made.scratch.path());
  const std::string html = render_report(report_of(view.update(kAll)));
  for (const char* words : {"<h2>Outcome</h2>", "<h2>Incidents</h2>", "Time of steps by part", "backward <b>60.0%</b>", "goodput",
                            "rank 2 (node-&lt;b&gt;): is slow", "code 71, hang: rank 2 hung", "1.25 kWh", "3.50 EUR", "9.9",
                            "started again after step 10", "class=\"status stopped\""})
    CHECK_THAT(html, ContainsSubstring(words));
  CHECK_THAT(html, !ContainsSubstring("http-equiv") && !ContainsSubstring("<b>: is slow"));
  for (const char* foreign : {"http:", "https:", "src=", "<link", "@import", "url("}) CHECK(count_of(html, foreign) == 0);
}

TEST_CASE("the page of watch has its style and script in itself and asks for nothing else") {
  const std::string page = watch_page();
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(count_of(page, "/*SCRIPT*/") + count_of(page, "/*REPORT_STYLE*/") == 0);
  CHECK(count_of(page, "<script>") == 1);
  CHECK(count_of(page, "</script>") == 1);
  for (const char* foreign : {"https:", "src=", "@import", "url("}) CHECK(count_of(page, foreign) == 0);
  CHECK(count_of(page, "http:") == count_of(page, "http://www.w3.org/2000/svg"));
}
