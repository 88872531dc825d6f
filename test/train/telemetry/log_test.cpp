#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "base/replace_file.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/http_server.h"
#include "train/telemetry/run_log.h"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Puts a file in the place of a standard stream while it lives.
class Redirect {
 public:
  Redirect(int stream, int file) : stream_(stream), saved_(dup(stream)) { dup2(file, stream); }
  ~Redirect() {
    dup2(saved_, stream_);
    close(saved_);
  }

 private:
  int stream_, saved_;
};

// Output of `work` to a standard stream that is a file.
template <class Work>
std::string written_by(int stream, const Work& work) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("trireme-out" + std::to_string(getpid()) + "-" + std::to_string(stream));
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  {
    const Redirect redirect(stream, file);
    work();
  }
  close(file);
  const std::string text = read_text(path);
  std::filesystem::remove(path);
  return text;
}

// Output of `work` to a terminal of so many columns. "\r\n" stands for a newline, as terminals have
// it.
template <class Work>
std::string shown_by(unsigned short columns, const Work& work) {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(screen >= 0);
  REQUIRE(grantpt(screen) == 0);
  REQUIRE(unlockpt(screen) == 0);
  const int terminal = open(ptsname(screen), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(terminal, TIOCSWINSZ, &size) == 0);
  std::string shown;
  std::thread reader([&] {
    std::array<char, 4096> buffer;
    for (ssize_t got; (got = ::read(screen, buffer.data(), buffer.size())) > 0;)
      shown.append(buffer.data(), static_cast<size_t>(got));
  });
  {
    const Redirect redirect(STDOUT_FILENO, terminal);
    work();
  }
  close(terminal);
  reader.join();
  close(screen);
  return shown;
}

StepRecord step_record(int64_t step, double loss = 2.5) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 0.75,
          .lr = 1e-3,
          .tokens = step * 1000,
          .step_ms = 12.5,
          .tokens_per_second = 80000,
          .data_ms = 0.1,
          .mfu = 0.4};
}

EvalRecord eval_record(int64_t step) {
  return {.step = step, .val_loss = 2.25, .bits_per_byte = 1.125, .val_tokens = 5000, .seconds = 0.5};
}

SaveRecord save_record(int64_t step) {
  return {.step = step,
          .bytes = 3 << 20,
          .seconds = 0.5,
          .write_seconds = 0.25,
          .stall_ms = 1.5,
          .run = "00000000000000000000000000000001",
          .scrubbed = 4096};
}

// metrics.jsonl without what is measured.
std::vector<Json> facts_of(const std::filesystem::path& path) {
  std::vector<Json> objects;
  for (const std::string& line : lines_of(read_text(path))) {
    Json object = Json::parse(line);
    for (const char* measured : {"step_ms", "data_ms", "tokens_per_second", "mfu", "seconds"}) object.erase(measured);
    objects.push_back(object);
  }
  return objects;
}

}  // namespace

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

TEST_CASE("losses and norms in metrics.jsonl read back as the same floats") {
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<uint32_t>(i * 2654435761u) ^ static_cast<uint32_t>(i << 7);
    const auto loss = std::bit_cast<float>(bits), norm = std::bit_cast<float>(~bits);
    if (!std::isfinite(loss) || !std::isfinite(norm)) continue;
    const std::string line = json_line(StepRecord{.step = 1, .loss = loss, .grad_norm = norm});
    float read_loss = 0, read_norm = 0;
    for (auto [key, value] : {std::pair{"\"loss\": ", &read_loss}, std::pair{"\"grad_norm\": ", &read_norm}}) {
      const char* begin = line.data() + line.find(key) + std::string_view(key).size();
      REQUIRE(std::from_chars(begin, line.data() + line.size(), *value).ec == std::errc());
    }
    REQUIRE(std::bit_cast<uint32_t>(read_loss) == bits);
    REQUIRE(std::bit_cast<uint32_t>(read_norm) == ~bits);
    REQUIRE(static_cast<float>(Json::parse(line)["loss"].get<double>()) == loss);  // through a double, as most readers do
  }
  const Json lr = Json::parse(json_line(StepRecord{.lr = 0.1 + 0.2}));
  CHECK(lr["lr"].get<double>() == 0.1 + 0.2);
}

TEST_CASE("metrics lines hold the documented keys in their order, and null for what is not finite") {
  CHECK(json_line(step_record(3)) ==
        "{\"step\": 3, \"loss\": 2.5, \"grad_norm\": 0.75, \"lr\": 0.001, \"tokens\": 3000, \"step_ms\": 12.500, "
        "\"data_ms\": 0.100, \"tokens_per_second\": 80000.0, \"mfu\": 0.4000, \"mfu_full\": null, \"hfu\": null}\n");
  CHECK(json_line(eval_record(3)) ==
        "{\"step\": 3, \"val_loss\": 2.25, \"bits_per_byte\": 1.125, \"val_tokens\": 5000, \"seconds\": 0.500}\n");
  CHECK(json_line(save_record(3)) ==
        "{\"step\": 3, \"saved_bytes\": 3145728, \"saved_seconds\": 0.500, \"write_gb_per_second\": 0.013, "
        "\"save_stall_ms\": 1.500, \"tier\": \"disk\", \"run\": \"00000000000000000000000000000001\", \"scrubbed_bytes\": 4096}\n");
  const Json object = Json::parse(json_line(StepRecord{.step = 1, .loss = NAN, .grad_norm = -INFINITY, .mfu = NAN}));
  CHECK(object["loss"].is_null());
  CHECK(object["grad_norm"].is_null());
  CHECK(object["mfu"].is_null());
}

TEST_CASE("a resumed metrics.jsonl keeps the lines up to its step and drops later and torn ones") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  const ChoicesRecord asked{.step = 2, .name = "a \"b\"", .accuracy = 0.25, .normalised = 1.0 / 3, .questions = 12};
  const std::string kept =
      json_line(step_record(1)) + json_line(step_record(2, NAN)) + json_line(eval_record(2)) + json_line(asked);
  const std::string later = json_line(step_record(3)) + json_line(eval_record(3)) + json_line(step_record(4));
  const std::string last = json_line(step_record(5));
  for (size_t torn = 0; torn <= last.size(); torn += 7) {
    write_text(path, kept + later + last.substr(0, torn));
    std::vector<int64_t> steps, evals;
    std::vector<double> losses;
    std::string answers;
    {
      MetricsFile file(directory.path(), 2,
                       {.step = [&](const StepRecord& r) { steps.push_back(r.step), losses.push_back(r.loss); },
                        .eval = [&](const EvalRecord& r) { evals.push_back(r.step); },
                        .choices = [&](const ChoicesRecord& r) { answers += json_line(r); }});
      CHECK(answers == json_line(asked));
      CHECK(file.dropped() == (torn > 0 ? 4 : 3));
      CHECK(file.append(json_line(step_record(3, 1.5))));
      CHECK(file.sync());
    }
    CHECK(read_text(path) == kept + json_line(step_record(3, 1.5)));
    CHECK(steps == std::vector<int64_t>{1, 2});
    CHECK(evals == std::vector<int64_t>{2});
    CHECK(losses[0] == 2.5);
    CHECK(std::isnan(losses[1]));
  }
  CHECK_FALSE(std::filesystem::exists(directory / "metrics.jsonl.tmp"));
}

TEST_CASE("a whole last line without its newline is kept, and garbage is not") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  const std::string garbage = "\n[1]\n{\"step\": \"1\"}\n{\"step\": -3, \"loss\": 1}\n\xff\xfe\n" + std::string(10, '\0') + "\n" +
                              std::string(100000, '[') + "\n{\"step\": 99999999999999999999}\n";
  std::string whole = json_line(step_record(1));
  whole.pop_back();
  write_text(path, garbage + whole);
  { MetricsFile file(directory.path(), 1, {}); }
  CHECK(read_text(path) == json_line(step_record(1)));
}

TEST_CASE("a fresh run begins metrics.jsonl anew, and a resume without the file begins it too") {
  const Scratch directory;
  const std::filesystem::path path = directory / "metrics.jsonl";
  write_text(path, json_line(step_record(1)));
  { MetricsFile file(directory.path(), -1, {}); }
  CHECK(read_text(path).empty());
  std::filesystem::remove(path);
  { MetricsFile file(directory.path(), 10, {}); }
  CHECK(read_text(path).empty());
  for (const int64_t resume_step : {-1, 3}) {
    const std::string file = std::string(directory / "absent/metrics.jsonl") + (resume_step < 0 ? "" : ".tmp");
    const std::string problem = file + ": No such file or directory; choose another directory";
    CHECK_THROWS_WITH(MetricsFile(directory / "absent", resume_step, {}), problem);
  }
}

TEST_CASE("exit.json holds code, cause, rank, host, step and message, whatever the message holds") {
  const Scratch directory;
  write_exit(directory.path(), ExitCode::data, "DataError", 3, 17, "a \"bad\"\nfile \xff \\", "gpu-12");
  const Json exit = Json::parse(read_text(directory / "exit.json"));
  CHECK(exit["code"] == 3);
  CHECK(exit["cause"] == "DataError");
  CHECK(exit["rank"] == 3);
  CHECK(exit["step"] == 17);
  CHECK(exit["host"] == "gpu-12");
  CHECK_THAT(exit["message"].get<std::string>(), ContainsSubstring("a \"bad\"\nfile "));
  CHECK_FALSE(std::filesystem::exists(directory / "exit.json.tmp"));
  write_exit(directory.path(), ExitCode::machine, "machine", 3, 0, "unfit", "");
  CHECK(Json::parse(read_text(directory / "exit.json"))["host"] == "");
  const std::string said = written_by(STDERR_FILENO, [&] { write_exit(directory / "absent", ExitCode::done, "", 0, -1, "", "n1"); });
  CHECK_THAT(said, ContainsSubstring("cannot write"));
}

TEST_CASE("a refused write leaves the old file whole") {
  const Scratch directory;
  const std::string path = directory / "file";
  CHECK(replace_file(path, "old"));
  CHECK(replace_file_durably(path, "new"));
  CHECK(read_text(path) == "new");
  std::filesystem::create_directories(path + ".tmp");  // stands in the way of the temporary file
  CHECK_FALSE(replace_file(path, "newer"));
  CHECK_FALSE(replace_file_durably(path, "newer"));
  CHECK(read_text(path) == "new");
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

TEST_CASE("a run's log has the first, every log_every-th and the last step") {
  const Scratch directory;
  const std::string said = written_by(STDOUT_FILENO, [&] {
    RunLog log(directory.path(), "test", {.steps = 25}, -1, 10);
    log.facts({{"device", "none"}});
    for (int64_t step = 1; step <= 25; ++step) {
      log.step(step_record(step));
      if (step == 20) log.eval(eval_record(step)), log.saved(save_record(step));
    }
    log.note("a note");
    log.finish();
  });
  const std::vector<std::string> lines = lines_of(said);
  REQUIRE(lines.size() == 8);
  CHECK(lines[0].starts_with("step  1/25  loss 2.5000  norm 0.75  lr 0.001  12.5ms  80k tok/s  mfu 40.0%  stall 100us  eta "));
  CHECK(lines[1].starts_with("step 10/25"));
  CHECK(lines[2].starts_with("step 20/25"));
  CHECK(lines[3] == "eval 20/25  validation loss 2.2500, 1.1250 bits per byte  (5k tokens, 500ms)");
  CHECK(lines[4] == "saved 20/25  3 MiB in 500ms, 12 MiB/s, steps waited 1.50ms");
  CHECK(lines[5].starts_with("step 25/25"));
  CHECK(lines[6] == "a note");
  CHECK(lines[7].starts_with(
      "finished 25 steps, 25k tokens in 812ms: loss 2.5000, best validation loss 2.2500, 1.1250 bits per byte at step 20; "));
  const std::vector<std::string> kept = lines_of(read_text(directory / "log.txt"));
  REQUIRE(kept.size() == lines.size());
  for (size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].substr(kept[i].find("Z  ") + 3) == lines[i]);
  CHECK(lines_of(read_text(directory / "metrics.jsonl")).size() == 27);
  CHECK_THAT(read_text(directory / "report.html"), ContainsSubstring("class=\"status finished\""));
}

TEST_CASE("a run in a terminal keeps its line below the notes") {
  const Scratch directory;
  const std::string shown = shown_by(120, [&] {
    RunLog log(directory.path(), "test", {.steps = 1000}, -1, 10);
    for (int64_t step = 1; step <= 1000; ++step) log.step(step_record(step));
    log.eval(eval_record(1000));
    log.finish();
  });
  CHECK(count_of(shown, "\n") == 2);    // the evaluation and the end
  CHECK(count_of(shown, "step") == 2);  // both in the end's line: no plain lines
  const size_t eval = shown.find("eval 1000/1000");
  REQUIRE(eval != std::string::npos);
  CHECK(shown.find("val 2.2500", shown.find('\n', eval)) != std::string::npos);  // the line returned, with the new loss
  CHECK(shown.ends_with("report.html\r\n"));
  CHECK(lines_of(read_text(directory / "log.txt")).size() == 103);
}

TEST_CASE("the metrics of a killed and resumed run equal the undisturbed run's") {
  const Scratch straight, killed;
  const auto train = [](const std::filesystem::path& path, int64_t from, int64_t to) {
    RunLog log(path, "test", {.steps = 30}, from > 0 ? from : -1, 100);
    for (int64_t step = from + 1; step <= to; ++step) {
      StepRecord record = step_record(step, 1.0 / static_cast<double>(step));
      record.step_ms = static_cast<double>(to);  // a measured time differs from run to run
      log.step(record);
      if (step % 10 == 0) log.eval(eval_record(step));
    }
  };
  written_by(STDOUT_FILENO, [&] {
    train(straight.path(), 0, 30);
    train(killed.path(), 0, 17);
    write_text(killed / "metrics.jsonl", read_text(killed / "metrics.jsonl") + "{\"step\": 18, \"lo");  // the kill
    train(killed.path(), 10, 23);
    train(killed.path(), 20, 30);
  });
  CHECK(facts_of(killed / "metrics.jsonl") == facts_of(straight / "metrics.jsonl"));
  CHECK(facts_of(straight / "metrics.jsonl").size() == 33);
  CHECK_THAT(read_text(killed / "log.txt"), ContainsSubstring("metrics.jsonl: 8 torn lines or lines after step 10 dropped"));
  CHECK_THAT(read_text(killed / "report.html"), ContainsSubstring("<dd>30</dd>"));
}

TEST_CASE("a resumed run's report has the points from before") {
  const Scratch directory;
  written_by(STDOUT_FILENO, [&] {
    {
      RunLog log(directory.path(), "test", {.steps = 100}, -1, 100);
      for (int64_t step = 1; step <= 50; ++step) log.step(step_record(step, 3.25));
      log.eval(eval_record(50));
    }
    RunLog log(directory.path(), "test", {.steps = 100}, 50, 100);
    log.step(step_record(51));
  });
  const std::string page = read_text(directory / "report.html");
  CHECK_THAT(page, ContainsSubstring("\"x\":[1,2,3,4,5,6,7,8"));
  CHECK_THAT(page, ContainsSubstring("49,50,51]"));
  CHECK_THAT(page, ContainsSubstring("best validation"));
}

// While it lives, no file of this process grows beyond so many bytes.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_CASE("a full disk is reported once, does not stop the run, and gets its lines when there is room") {
  const Scratch directory;
  std::string warned, whole;
  written_by(STDOUT_FILENO, [&] {
    warned = written_by(STDERR_FILENO, [&] {
      RunLog log(directory.path(), "test", {.steps = 31}, -1, 100);
      {
        const SmallDisk full(2048);
        for (int64_t step = 1; step <= 30; ++step) log.step(step_record(step));
      }
      log.step(step_record(31));
      log.finish();
    });
  });
  CHECK(count_of(warned, "warning") == 1);
  for (int64_t step = 1; step <= 31; ++step) whole += json_line(step_record(step));
  CHECK(read_text(directory / "metrics.jsonl") == whole);
}

TEST_CASE("readers of a run that cannot write or listen are a warning each, and the run continues") {
  const Scratch directory;
  const HttpServer taken("127.0.0.1", 0, [](const std::string&) { return HttpAnswer{}; });
  const ReportConfig report{.tensorboard = true,
                            .prometheus_file = directory / "absent/run.prom",
                            .metrics_port = taken.port(),
                            .metrics_host = "127.0.0.1"};
  std::string whole;
  const std::string said = written_by(STDOUT_FILENO, [&] {
    const std::string complained = written_by(STDERR_FILENO, [&] {
      RunLog log(directory.path(), "test", {.steps = 31}, -1, 100);
      log.also_to(report, {.run = "test", .version = "0", .commit = "0"});
      {
        const SmallDisk full(2048);
        for (int64_t step = 1; step <= 30; ++step) log.step(step_record(step)), std::this_thread::sleep_for(2ms);
      }
      log.step(step_record(31));
      log.finish();
    });
    CHECK(count_of(complained, "warning") == 1);  // of metrics.jsonl itself
  });
  CHECK(count_of(said, "warning: report.metrics_port: port ") == 1);
  CHECK(count_of(said, "warning: report.prometheus_file: ") == 1);
  CHECK(count_of(said, "warning: TensorBoard's event file: ") == 1);
  CHECK(count_of(said, "warning") == 3);
  for (int64_t step = 1; step <= 31; ++step) whole += json_line(step_record(step));
  CHECK(read_text(directory / "metrics.jsonl") == whole);
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().filename().string().starts_with("events.")) {
      const std::string events = read_text(entry.path());
      CHECK(count_of(events, "train/loss") == 31);
      CHECK(count_of(events, "brain.Event:2") == 1);
    }
}

TEST_CASE("notes may come from another thread than the steps") {
  const Scratch directory;
  written_by(STDOUT_FILENO, [&] {
    RunLog log(directory.path(), "test", {.steps = 500}, -1, 50);
    std::thread other([&] {
      for (int i = 0; i < 100; ++i) log.note("note " + std::to_string(i));
    });
    for (int64_t step = 1; step <= 500; ++step) log.step(step_record(step));
    other.join();
    log.finish();
  });
  CHECK(lines_of(read_text(directory / "log.txt")).size() == 11 + 100 + 1);
}

TEST_CASE("a run in a terminal shows what its steps wait for, and the time left counts it") {
  const Scratch directory;
  const std::string shown = shown_by(120, [&] {
    RunLog log(directory.path(), "test", {.steps = 10, .eval_every = 10, .evaluation_in_steps = 80}, -1, 1);
    log.step(step_record(1));
    log.busy("evaluating", 0, 5047);
    std::this_thread::sleep_for(150ms);
    log.busy("evaluating", 264, 5047);
    log.idle();
    log.busy("saving");
    log.idle();
  });
  CHECK_THAT(shown, ContainsSubstring(" 1/10  evaluating 0/5047  loss 2.5000  ETA 1.1s\x1b") ||
                        ContainsSubstring(" 1/10  evaluating 0/5047  loss 2.5000  ETA 1.1s\r"));
  CHECK_THAT(shown, ContainsSubstring(" 1/10  evaluating 264/5047  loss 2.5000  ETA "));
  CHECK_THAT(shown, ContainsSubstring(" 1/10  saving  loss 2.5000  ETA "));
  CHECK(shown.rfind("80k tok/s") > shown.rfind("saving"));
  CHECK(lines_of(read_text(directory / "log.txt")).size() == 1);
}

TEST_CASE("speed and MFU that people see are those of usual steps, and metrics.jsonl has each step's own") {
  const Scratch directory;
  const std::string said = written_by(STDOUT_FILENO, [&] {
    RunLog log(directory.path(), "test", {.steps = 21}, -1, 1);
    for (int64_t step = 1; step <= 20; ++step) log.step(step_record(step));
    StepRecord slow = step_record(21);
    slow.step_ms *= 100, slow.tokens_per_second /= 100, slow.mfu /= 100;
    log.step(slow);
    slow.mfu = NAN;
    log.step(slow);
  });
  CHECK_THAT(lines_of(said).back(), !ContainsSubstring("mfu"));
  CHECK(lines_of(said)[20] == "step 21/21  loss 2.5000  norm 0.75  lr 0.001  1.2s  72.7k tok/s  mfu 36.4%  stall 100us");
  CHECK_THAT(read_text(directory / "metrics.jsonl"),
             ContainsSubstring("\"tokens_per_second\": 800.0, \"mfu\": 0.0040, \"mfu_full\": null, \"hfu\": null}"));
}

TEST_CASE("the parts of steps are in metrics.jsonl, and their sums in the last words") {
  const Scratch directory;
  StepRecord record = step_record(1);
  record.mfu_full = 0.5, record.hfu = 0.625;
  record.parts = {{"other", 0.03125}, {"forward", 4}, {"wait_dp", 1}, {"backward", 8}};
  const std::string said = written_by(STDOUT_FILENO, [&] {
    RunLog log(directory.path(), "test", {.steps = 2}, -1, 1);
    log.step(record);
    record.step = 2, record.parts.back().ms = 3;
    log.step(record);
    log.finish();
  });
  CHECK_THAT(read_text(directory / "metrics.jsonl"),
             ContainsSubstring("\"mfu\": 0.4000, \"mfu_full\": 0.5000, \"hfu\": 0.6250, \"parts_ms\": {\"other\": 0.031, "
                               "\"forward\": 4.000, \"wait_dp\": 1.000, \"backward\": 8.000}}\n"));
  CHECK_THAT(said, ContainsSubstring("time of steps: 52 % backward, 38 % forward, 9 % waiting for dp\n"));
}

TEST_CASE("a resumed log knows the evaluations and events of before") {
  const Scratch directory;
  const std::string event = "{\"step\": 5, \"event\": \"zero_gradients\", \"since\": 3}\n";
  written_by(STDOUT_FILENO, [&] {
    {
      RunLog log(directory.path(), "test", {.steps = 30}, -1, 10);
      for (int64_t step = 1; step <= 10; ++step) log.step(step_record(step));
      log.event({.step = 5, .event = "zero_gradients", .since = 3}, "warning");
      log.eval(eval_record(10));
      log.choices({.step = 10, .name = "quiz"}, "words");
      CHECK(log.evaluated(10, ""));
    }
    RunLog log(directory.path(), "test", {.steps = 30}, 10, 10);
    CHECK(log.evaluated(10, ""));
    CHECK(log.evaluated(10, "quiz"));
    CHECK_FALSE(log.evaluated(10, "other"));
    CHECK_FALSE(log.evaluated(9, ""));
  });
  CHECK_THAT(read_text(directory / "metrics.jsonl"), ContainsSubstring(event));
}

TEST_CASE("a reader that stops reading does not stop a run, and misses lines that log.txt has") {
  const Scratch directory;
  std::array<int, 2> pipe_ends{};
  REQUIRE(pipe(pipe_ends.data()) == 0);
  const auto begin = Clock::now();
  std::string heard(1 << 20, ' ');
  {
    const Redirect redirect(STDOUT_FILENO, pipe_ends[1]);
    RunLog log(directory.path(), "test", {.steps = 10}, -1, 1);
    for (int i = 0; i < 9; ++i) log.note(std::string(16 << 10, static_cast<char>('a' + i)));  // a pipe holds 64 KiB
    heard.resize(static_cast<size_t>(::read(pipe_ends[0], heard.data(), heard.size())));
    log.note("read again");
    heard.resize(heard.size() + 100);
    heard.resize(heard.size() - 100 + static_cast<size_t>(::read(pipe_ends[0], heard.data() + heard.size() - 100, 100)));
  }
  close(pipe_ends[0]), close(pipe_ends[1]);
  CHECK(seconds_since(begin) < 10);
  CHECK(heard.find(std::string(16 << 10, 'a') + "\n") == 0);
  CHECK(heard.find("iiii") == std::string::npos);
  CHECK(heard.ends_with("read again\n"));
  CHECK(lines_of(read_text(directory / "log.txt")).size() == 10);
}
