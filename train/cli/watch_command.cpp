// trireme watch: runs on a page of this machine, or in a terminal.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/json.h"
#include "train/cli/commands.h"
#include "train/cli/json_output.h"
#include "train/health/interrupts.h"
#include "train/run/run_view.h"
#include "train/telemetry/http_server.h"
#include "train/telemetry/log.h"
#include "train/telemetry/watch_json.h"
#include "train/telemetry/watch_page.h"
#include "train/telemetry/watch_text.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kUsualPort = 8080;
constexpr auto kAnswerTime = 200ms, kReadTime = 50ms;  // that a long file is read at a time
constexpr auto kWholeTime = std::chrono::hours(24);
constexpr auto kRedraw = 1s;

struct WatchOptions {
  static constexpr auto name = "watch";
  static constexpr auto about = "Show runs on a page of this machine, or in the terminal";
  std::vector<std::string> runs;
  int64_t port = 0;
  std::string host = "127.0.0.1", json;
  bool text = false, once = false, ascii = false;

  void visit(Options& o) {
    o("run", runs, "Directories of runs, such as runs/NAME").required();
    o("--port", port, "TCP port of the page; default: 8080, or any free one if that is taken", between(1, 65535));
    o("--host", host, "Address of this machine on which the port is open, a number; 0.0.0.0: all of them, without a password");
    o("--text", text, "Draw in the terminal once a second, instead of serving a page");
    o("--once", once, "With --text: print once and end, as without a terminal").needs("--text");
    o("--ascii", ascii, "With --text: no character beyond ASCII; default: as the locale says").needs("--text");
    o.json(json);
  }
  static std::string footer() {
    return "Reads the files of the run directories alone: of runs that train or have ended, also on a shared file system.\n"
           "The page of another machine: ssh -L 8080:localhost:8080 HOST, then http://localhost:8080.";
  }
};

// Answers requests: / is the page, /runs the list, /run/INDEX/SEEN a run as JSON. Reads long files meanwhile, as the server's
// thread is one that lets others go first.
class WatchPages {
 public:
  explicit WatchPages(std::deque<RunView>& runs) : runs_(runs), page_(watch_page()) {}

  HttpAnswer answer(const std::string& path) {
    constexpr auto kJson = "application/json";
    if (path == "/" || path == "/index.html") return {.type = "text/html; charset=utf-8", .body = page_};
    if (path == "/runs") return {.type = kJson, .body = list()};
    if (!path.starts_with("/run/")) return {.status = 404, .body = "not here; see /\n"};
    const std::string_view rest = std::string_view(path).substr(5);
    size_t index = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    if (error != std::errc() || index >= runs_.size()) return {.status = 404, .body = "no such run\n"};
    std::string_view seen = rest.substr(static_cast<size_t>(end - rest.data()));
    if (seen.starts_with('/')) seen.remove_prefix(1);
    const std::lock_guard lock(mutex_);
    return {.type = kJson, .body = watch_json(runs_[index].update(kAnswerTime), parse_seen(seen))};
  }

  // Reads on for a moment. False if all is read.
  bool read_on() {
    const std::lock_guard lock(mutex_);
    bool more = false;
    for (RunView& run : runs_)
      if (run.picture().more) more |= run.update(kReadTime).more;
    return more;
  }

 private:
  std::string list() {
    Json all = Json::array();
    const std::lock_guard lock(mutex_);
    for (const RunView& run : runs_) all.push_back({{"name", run.picture().title}, {"directory", run.picture().directory}});
    return Json{{"runs", all}}.dump();
  }

  std::mutex mutex_;  // of runs_
  std::deque<RunView>& runs_;
  const std::string page_;
};

void wait_for_interrupt(const Interrupts& interrupts, std::chrono::milliseconds most) {
  const auto end = Clock::now() + most;
  while (!interrupts.pending() && Clock::now() < end) std::this_thread::sleep_for(std::min<Clock::duration>(50ms, most));
}

std::vector<std::string> all_lines(std::deque<RunView>& runs, const TextView& view, Clock::duration most) {
  std::vector<std::string> lines;
  const TextView part{
      .width = view.width, .height = std::max(view.height / static_cast<int>(runs.size()) - 1, 3), .unicode = view.unicode};
  for (RunView& run : runs) {
    if (!lines.empty()) lines.emplace_back();
    const std::vector<std::string> one = watch_lines(run.update(most), runs.size() == 1 ? view : part);
    lines.insert(lines.end(), one.begin(), one.end());
  }
  return lines;
}

void draw_until_interrupted(std::deque<RunView>& runs, bool unicode) {
  const Interrupts interrupts;
  say_part("\x1b[2J");
  while (!interrupts.pending()) {
    const TerminalSize size = terminal_size();
    draw_screen(all_lines(runs, {.width = size.columns, .height = size.lines, .unicode = unicode}, kAnswerTime));
    const bool reading = std::ranges::any_of(runs, [](const RunView& run) { return run.picture().more; });
    wait_for_interrupt(interrupts, reading ? 0ms : kRedraw);
  }
  say("");
}

void watch_in_terminal(std::deque<RunView>& runs, const WatchOptions& options) {
  const bool unicode = !options.ascii && speaks_unicode();
  if (is_terminal() && !options.once) return draw_until_interrupted(runs, unicode);
  const TextView whole{.width = is_terminal() ? terminal_size().columns : 100, .height = 60, .unicode = unicode};
  for (const std::string& line : all_lines(runs, whole, kWholeTime)) say(line);
}

void serve_until_interrupted(std::deque<RunView>& runs, const WatchOptions& options) {
  WatchPages pages(runs);
  const auto answer = [&](const std::string& path) { return pages.answer(path); };
  std::optional<HttpServer> server;
  try {
    if (options.port == 0) server.emplace(options.host, kUsualPort, answer);
  } catch (const Error&) {  // taken: any other is as good
  }
  try {
    if (!server) server.emplace(options.host, options.port, answer);
  } catch (const Error& problem) {
    throw ConfigError(text("--port ", options.port, ", --host ", options.host, ": ", problem.what()));
  }
  const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  say(std::string(text("watching on http://", host, ":", server->port(), "/ until Ctrl-C")));
  const Interrupts interrupts;
  while (!interrupts.pending()) wait_for_interrupt(interrupts, pages.read_on() ? 2ms : 500ms);
}

ExitCode run_watch(const WatchOptions& options) {
  JsonOutput json(options.json);
  std::deque<RunView> runs;
  for (const std::string& run : options.runs) runs.emplace_back(run);
  if (json.wanted()) {
    Json all = Json::array();
    for (RunView& run : runs) all.push_back(Json::parse(watch_json(run.update(kWholeTime), {})));
    complain(std::string(text(runs.size(), runs.size() == 1 ? " run" : " runs", " read")));
    json.write({{"runs", all}});
  } else if (options.text) {
    watch_in_terminal(runs, options);
  } else {
    for (RunView& run : runs) run.update(0ms);  // its name
    serve_until_interrupted(runs, options);
  }
  return ExitCode::done;
}

}  // namespace

std::unique_ptr<Command> watch_command() { return make_command<WatchOptions>(run_watch); }

}  // namespace trireme
