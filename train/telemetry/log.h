// The voice of the program: stdout, stderr, the line that lives at the bottom of a terminal, and the log of a run.
//
// Nothing else in the program writes to stdout or stderr. Lines carry no newline. Under several ranks, rank 0 speaks. Lines are
// written as printable_lines(): control characters out of files never reach a terminal. say_part() writes its bytes as they are.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/number_format.h"

namespace trireme {

void say(std::string_view line);  // stdout; a live progress line gives way and returns with its next update
// Says a line that is also kept elsewhere, unless stdout takes nothing for a tenth of a second: a launcher that is ending its ranks
// reads no more of what they say, and they have a second to save.
void say_if_heard(std::string_view line);
void say_text(std::string_view text);  // stdout: text as data, exact unless stdout is a terminal
void say_part(std::string_view part);  // stdout at once, without a newline: text that grows
void complain(std::string_view line);  // stderr
bool is_terminal();                    // stdout is a terminal of known width (a launcher's pseudo-terminal is not)
bool speaks_unicode();                 // the user's locale writes UTF-8

struct TerminalSize {
  int columns = 80, lines = 24;
};
TerminalSize terminal_size();  // of stdout; the default if it is not a terminal
// Replaces what a terminal shows by these lines, each of at most its width, without flicker.
void draw_screen(const std::vector<std::string>& lines);

// Standard output, reserved for results that programs read. As long as this exists, what say() and libraries print goes to standard
// error.
class ReservedOutput {
 public:
  ReservedOutput();  // Error when the process has no file descriptor left
  ~ReservedOutput();
  ReservedOutput(const ReservedOutput&) = delete;
  ReservedOutput& operator=(const ReservedOutput&) = delete;
  bool write(std::string_view text) const;  // to standard output; false when that cannot be written

 private:
  int output_;
};

// The content of a progress line; a total of 0 is unknown.
struct Progress {
  std::string label;
  int64_t done = 0, total = 0;
  std::vector<std::string> details;  // to the right of the bar, the most important first
};

// One line of at most `width` columns: label, bar, percentage, details. What does not fit is left out, the last detail first.
std::string progress_line(const Progress& progress, int width, bool unicode);

// The line at the bottom of a terminal, redrawn in place; elsewhere it does not exist.
class StatusLine {
 public:
  StatusLine();
  bool possible() const { return terminal_; }
  void draw(const Progress& progress);
  void erase();
  void leave();  // it stays, and what follows begins below it

 private:
  bool terminal_, unicode_, drawn_ = false;
};

inline constexpr std::chrono::milliseconds kRedrawPeriod{100};  // between two drawings of a progress line

// Limits an action to once per period.
class Throttle {
 public:
  explicit Throttle(Clock::duration period) : period_(period) {}
  bool due(Clock::time_point now);  // true starts a new period; the first call is due

 private:
  Clock::duration period_;
  Clock::time_point next_{};
};

// The progress of one long piece of work. In a terminal a line redrawn at most ten times a second; elsewhere a plain line at most
// every three seconds and every tenth of the way.
class ProgressBar {
 public:
  using Format = std::string (*)(double);
  // total 0: unknown. The unit names what is counted, "sequences"; bytes have theirs by human_bytes.
  ProgressBar(std::string label, int64_t total, Format format = human_count, std::string unit = "");
  ~ProgressBar();  // without finish(): the line is erased
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done);  // cheap: may be called for every item; one thread at a time
  void finish();              // leaves one line with the count, the time and the rate

 private:
  std::string count() const;
  std::string rate(double seconds) const;

  Progress progress_;
  Format format_;
  std::string unit_;
  StatusLine line_;
  Throttle throttle_;
  Clock::time_point start_;
  int64_t next_line_ = 0;  // the count from which a plain line is due
};

}  // namespace trireme
