#include "train/telemetry/log.h"

#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/replace_file.h"

namespace trireme {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr auto kHearing = 100ms;   // that a line may wait for its reader
constexpr auto kPlainPeriod = 3s;  // between two plain lines of a ProgressBar
constexpr int kLeastBar = 8, kMostBar = 40;

int columns_of(int file) {
  winsize size{};
  return isatty(file) != 0 && ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// A terminal that went away does not end a run: what cannot be said stays unsaid.
void speak(int file, std::string_view line) {
  std::string text(columns_of(file) > 0 ? kEraseLine : std::string_view());
  text += printable_lines(line);
  text += '\n';
  (void)write_all(file, text);
}

int columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string first_columns(std::string_view text, int width) {
  size_t end = 0;
  for (int seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && seen++ == width) break;
  }
  return std::string(text.substr(0, end));
}

std::string bar(double part, int width, bool unicode) {
  std::string drawn;
  if (!unicode) {
    const int full = static_cast<int>(part * (width - 2));
    drawn.append(static_cast<size_t>(full), '=').append(full < width - 2 ? ">" : "").resize(static_cast<size_t>(width - 2), ' ');
    return "[" + drawn + "]";
  }
  const int halves = static_cast<int>(part * 2 * width);
  for (int i = 0; i < width; ++i) drawn += 2 * i + 1 < halves ? "━" : 2 * i < halves ? "╸" : "─";
  return drawn;
}

std::string share(double part) { return fixed(std::floor(100 * part), 0) + "%"; }

}  // namespace

void say(std::string_view line) { speak(STDOUT_FILENO, line); }
// By a description of its own, which alone does not block: others may share stdout's.
void say_if_heard(std::string_view line) {
  struct stat facts {};
  const bool read_by_someone = fstat(STDOUT_FILENO, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISCHR(facts.st_mode));
  const int file = read_by_someone ? open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  if (file < 0) return say(line);
  const std::string text = (is_terminal() ? std::string(kEraseLine) : std::string()) + printable_lines(line) + '\n';
  std::string_view left = text;
  for (const auto begin = Clock::now(); !left.empty() && Clock::now() - begin < kHearing;) {
    const ssize_t written = write(file, left.data(), left.size());
    if (written > 0) left.remove_prefix(static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) break;
    std::this_thread::sleep_for(5ms);
  }
  close(file);
}
void say_text(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 0) return say(text);
  (void)write_all(STDOUT_FILENO, std::string(text) + '\n');
}
void say_part(std::string_view part) { (void)write_all(STDOUT_FILENO, part); }
void complain(std::string_view line) { speak(STDERR_FILENO, line); }
bool is_terminal() { return columns_of(STDOUT_FILENO) > 0; }

bool speaks_unicode() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool unicode = std::string_view(nl_langinfo_l(CODESET, locale)) == "UTF-8";
  freelocale(locale);
  return unicode;
}

TerminalSize terminal_size() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .lines = size.ws_row};
}

// From the upper left: what a line leaves of the one before is erased, and what is below the last.
void draw_screen(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\r\n" : "") + printable(lines[i]) + "\x1b[K";
  (void)write_all(STDOUT_FILENO, text + "\x1b[J");
}

ReservedOutput::ReservedOutput() : output_(dup(STDOUT_FILENO)) {
  require(output_ >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0, text("cannot redirect standard output"));
}
ReservedOutput::~ReservedOutput() {
  dup2(output_, STDOUT_FILENO);
  close(output_);
}
// JSON escapes C0 controls itself, and knows the form in which the others are escaped.
bool ReservedOutput::write(std::string_view text) const {
  return columns_of(output_) > 0 ? write_all(output_, printable_lines(text)) : write_all(output_, text);
}

std::string progress_line(const Progress& progress, int width, bool unicode) {
  if (width <= 0) return {};
  const double part =
      progress.total > 0 ? std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0) : 0;
  const std::string label = first_columns(progress.label, std::max(width / 3, 1));
  const std::string after = progress.total > 0 ? " " + std::string(part < 0.1 ? " " : "") + share(part) : "";
  int room = width - columns(label) - columns(after) - (progress.total > 0 ? 1 + kLeastBar : 0);
  std::string details;
  for (const std::string& detail : progress.details) {
    if (columns(detail) + 2 > room) break;
    room -= columns(detail) + 2;
    details += "  " + detail;
  }
  if (progress.total <= 0) return label + details;
  if (room < 0) return first_columns(label + after, width);
  return label + " " + bar(part, std::min(kLeastBar + room, kMostBar), unicode) + after + details;
}

StatusLine::StatusLine() : terminal_(is_terminal()), unicode_(terminal_ && speaks_unicode()) {}

void StatusLine::draw(const Progress& progress) {
  if (!terminal_) return;
  const std::string line = progress_line(progress, columns_of(STDOUT_FILENO) - 1, unicode_);
  (void)write_all(STDOUT_FILENO, std::string(kEraseLine) + printable(line));
  drawn_ = true;
}

void StatusLine::erase() {
  if (drawn_) (void)write_all(STDOUT_FILENO, kEraseLine);
  drawn_ = false;
}

void StatusLine::leave() {
  if (drawn_) (void)write_all(STDOUT_FILENO, "\n");
  drawn_ = false;
}

bool Throttle::due(Clock::time_point now) {
  if (now < next_) return false;
  next_ = now + period_;
  return true;
}

std::string ProgressBar::count() const {
  const std::string done = format_(static_cast<double>(progress_.done));
  return (progress_.total > 0 ? done + "/" + format_(static_cast<double>(progress_.total)) : done) + unit_;
}

std::string ProgressBar::rate(double seconds) const {
  return seconds > 0 ? format_(static_cast<double>(progress_.done) / seconds) + unit_ + "/s" : "";
}

ProgressBar::ProgressBar(std::string label, int64_t total, Format format, std::string unit)
    : progress_{.label = std::move(label), .done = 0, .total = total, .details = {}},
      format_(format),
      unit_(unit.empty() ? "" : " " + std::move(unit)),
      throttle_(line_.possible() ? Clock::duration(kRedrawPeriod) : Clock::duration(kPlainPeriod)),
      start_(Clock::now()),
      next_line_(total / 10) {
  if (!line_.possible()) (void)throttle_.due(start_);  // work that is done within a period needs no line but the last
}

ProgressBar::~ProgressBar() { line_.erase(); }

void ProgressBar::update(int64_t done) {
  progress_.done = done;
  if (!line_.possible() && done < next_line_) return;
  if (!throttle_.due(Clock::now())) return;
  const double seconds = seconds_since(start_);
  progress_.details = {count()};
  if (done > 0) progress_.details.push_back(rate(seconds));
  if (done > 0 && progress_.total > done) {
    const double left = static_cast<double>(progress_.total - done) / static_cast<double>(done);
    progress_.details.push_back("ETA " + human_seconds(seconds * left));
  }
  if (line_.possible()) return line_.draw(progress_);
  const int64_t tenth = progress_.total / 10;
  if (tenth > 0) next_line_ = (done / tenth + 1) * tenth;
  std::string line = progress_.label + ":";
  for (const std::string& detail : progress_.details) line += "  " + detail;
  say(line);
}

void ProgressBar::finish() {
  line_.erase();
  const double seconds = seconds_since(start_);
  say(progress_.label + ": " + format_(static_cast<double>(progress_.done)) + unit_ + " in " + human_seconds(seconds) + ", " +
      rate(seconds));
}

}  // namespace trireme
