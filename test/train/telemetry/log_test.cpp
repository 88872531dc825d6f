#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/replace_file.h"
#include "test/train/telemetry/run_records.h"
#include "train/telemetry/http_server.h"

namespace trireme {

using namespace std::chrono_literals;

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

}  // namespace trireme
