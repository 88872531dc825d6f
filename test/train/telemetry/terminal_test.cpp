#include <limits>

#include "base/clock.h"
#include "test/train/telemetry/shown.h"
#include "train/telemetry/log.h"

namespace trireme {

using namespace std::chrono_literals;

TEST_CASE("numbers are printed as people read them") {
  CHECK(human_si(2.5e11) == "250 G");
  CHECK(human_si(12) == "12 ");
  CHECK(human_count(0) == "0");
  CHECK(human_count(950) == "950");
  CHECK(human_count(999.9) == "1.00k");
  CHECK(human_count(1.23e6) == "1.23M");
  CHECK(human_count(12345) == "12.3k");
  CHECK(human_count(405e9) == "405B");
  CHECK(human_count(999999) == "1.00M");
  CHECK(human_count(-1500) == "-1.50k");
  CHECK(human_count(NAN) == "nan");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1536) == "1.50 KiB");
  CHECK(human_bytes(123.0 * (1 << 20)) == "123 MiB");
  CHECK(human_seconds(0) == "0s");
  CHECK(human_seconds(0.00000123) == "1.23us");
  CHECK(human_seconds(0.0123) == "12.3ms");
  CHECK(human_seconds(0.9999) == "1.0s");
  CHECK(human_seconds(9.97) == "10s");
  CHECK(human_seconds(59.6) == "1m 00s");
  CHECK(human_seconds(125) == "2m 05s");
  CHECK(human_seconds(3599.7) == "1h 00m");
  CHECK(human_seconds(7384) == "2h 03m");
  CHECK(human_seconds(90000) == "1d 01h");
  CHECK(human_seconds(-125) == "-2m 05s");
  CHECK(human_seconds(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(fixed(3.14159, 2) == "3.14");
  CHECK(fixed(-1e300, 0).size() == 302);
  CHECK(significant(0.00012345, 3) == "0.000123");
}

TEST_CASE("a throttle lets the first through and then one per period") {
  Throttle throttle(100ms);
  const Clock::time_point start = Clock::now();
  int passed = 0;
  for (int ms = 0; ms < 1000; ++ms) passed += throttle.due(start + std::chrono::milliseconds(ms)) ? 1 : 0;
  CHECK(passed == 10);
  CHECK(throttle.due(start + 5s));
  CHECK_FALSE(throttle.due(start + 5s));
}

TEST_CASE("a progress line fits any width, and shows what matters most first") {
  const Progress progress{
      .label = "quickstart", .done = 250, .total = 1000, .details = {"250/1000", "loss 2.5000", "80k tok/s", "ETA 2m 05s"}};
  for (int width = 0; width < 200; ++width) {
    for (const bool unicode : {false, true}) {
      const std::string line = progress_line(progress, width, unicode);
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      REQUIRE(columns <= width);
      if (width >= 60) REQUIRE(line.find("250/1000") != std::string::npos);
    }
  }
  CHECK(progress_line(progress, 60, false) == "quickstart [==>      ] 25%  250/1000  loss 2.5000  80k tok/s");
  CHECK(progress_line({.label = "a", .done = 1, .total = 1, .details = {}}, 15, false) == "a [======] 100%");
  CHECK(progress_line({.label = "a", .done = 0, .total = 0, .details = {"7"}}, 40, true) == "a  7");
  CHECK(progress_line({.label = "a", .done = 5, .total = 8, .details = {}}, 14, true) == "a ━━━━━─── 62%");
  CHECK(progress_line({.label = "a", .done = 99, .total = 8, .details = {}}, 15, true) == "a ━━━━━━━━ 100%");
}

TEST_CASE("say and complain write one plain line each where there is no terminal") {
  CHECK(written_by(STDOUT_FILENO, [] { say("hello"), say(""); }) == "hello\n\n");
  CHECK(written_by(STDERR_FILENO, [] { complain("oh"); }) == "oh\n");
}

TEST_CASE("a terminal without a width, as launchers make them, counts as no terminal") {
  for (const unsigned short columns : {0, 80}) {
    bool terminal = false;
    const std::string shown = shown_by(columns, [&] {
      terminal = is_terminal();
      say("hello");
    });
    CHECK(terminal == (columns > 0));
    CHECK(shown == (columns > 0 ? "\r\x1b[Khello\r\n" : "hello\r\n"));
  }
}

TEST_CASE("a progress bar in a terminal is drawn in place, at most ten times a second, and leaves one line") {
  const std::string shown = shown_by(70, [] {
    ProgressBar bar("packing", 1000000, human_bytes);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; std::chrono::steady_clock::now() - start < 350ms; ++i) bar.update(i % 1000000);
    bar.update(1000000);
    bar.finish();
  });
  const size_t drawn = count_of(shown, "\x1b[K");
  CHECK(drawn >= 4);
  CHECK(drawn <= 4 + 2);  // erase and last line
  CHECK(count_of(shown, "\n") == 1);
  CHECK_THAT(shown, ContainsSubstring("packing: 977 KiB in "));
  CHECK_THAT(shown, ContainsSubstring("iB/s"));
}

TEST_CASE("a progress bar elsewhere is silent for quick work, but for its last line") {
  const std::string said = written_by(STDOUT_FILENO, [] {
    ProgressBar bar("packing", 1000, human_count, "rows");
    for (int64_t i = 0; i <= 1000; ++i) bar.update(i);
    bar.finish();
  });
  CHECK(lines_of(said).size() == 1);
  CHECK_THAT(said, ContainsSubstring("packing: 1k rows in ") && ContainsSubstring(" rows/s"));
  const std::string abandoned = written_by(STDOUT_FILENO, [] {
    ProgressBar bar("abandoned", 5);
    bar.update(3);
  });
  CHECK(abandoned == "");
}

}  // namespace trireme
