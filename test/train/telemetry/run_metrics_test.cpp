#include "train/telemetry/run_metrics.h"

#include <cmath>
#include <filesystem>

#include "test/catch.h"
#include "test/data/scratch.h"

using namespace trireme;

namespace {

const RunFacts kFacts{.run = "a \"run\" \\ here",
                      .version = "0.2.0",
                      .commit = "abc",
                      .total_steps = 100,
                      .ranks = 4,
                      .restored = 20,
                      .starts = {.first = 1, .count = 3},
                      .patience = 5};

StepRecord page_record(int64_t step, double ms = 250) {
  return {.step = step,
          .loss = 2.5,
          .grad_norm = 0.75,
          .lr = 1e-3,
          .tokens = 10'000 + 4096 * step,
          .step_tokens = 4096,
          .step_ms = ms,
          .tokens_per_second = 80000,
          .data_ms = 50,
          .mfu = 0.4};
}

std::string sample(const std::string& name, const std::string& value, const std::string& labels = "") {
  return "\ntrireme_" + name + "{run=\"a \\\"run\\\" \\\\ here\"" + labels + "} " + value + "\n";
}

}  // namespace

TEST_CASE("the page of metrics has the newest record of each kind and sums over steps") {
  RunMetrics metrics(kFacts);
  CHECK_THAT(metrics.text(), ContainsSubstring(sample("restored_step", "20")) && !ContainsSubstring("trireme_loss") &&
                                 !ContainsSubstring("trireme_eval"));
  metrics.add(page_record(21));
  StepRecord slow = page_record(22, 2500);
  slow.mfu_full = 0.5, slow.hfu = 0.625, slow.parts = {{"forward", 1500}, {"wait_tp", 1000}};
  metrics.add(slow);
  metrics.add(EventRecord{.step = 22, .event = "spike", .since = 22});
  metrics.add(EvalRecord{.step = 22, .val_loss = 3.25, .bits_per_byte = NAN});
  metrics.add(ChoicesRecord{.step = 22, .name = "quiz", .accuracy = 0.5});
  metrics.add(SaveRecord{.step = 20, .bytes = 1000, .seconds = 2, .stall_ms = 125});
  metrics.add(SaveRecord{.step = 22, .bytes = 77, .stall_ms = 125, .in_memory = true});
  const std::string text = metrics.text();
  INFO(text);
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(has(sample("build_info", "1", ",version=\"0.2.0\",commit=\"abc\"")));
  CHECK(has(sample("step", "22")));
  CHECK(has(sample("loss", "2.5")));
  CHECK(has(sample("restarts_total", "2")));
  CHECK(has("# TYPE trireme_tokens_total counter" + sample("tokens_total", "8192")));
  CHECK(has(sample("run_tokens", "100112")));
  CHECK(has(sample("step_seconds_bucket", "0", ",le=\"0.1\"")));
  CHECK(has(sample("step_seconds_bucket", "1", ",le=\"0.3\"")));
  CHECK(has(sample("step_seconds_bucket", "2", ",le=\"3\"")));
  CHECK(has(sample("step_seconds_bucket", "2", ",le=\"+Inf\"")));
  CHECK(has(sample("step_seconds_sum", "2.75")));
  CHECK(has(sample("data_wait_seconds_total", "0.1")));
  CHECK(has(sample("part_seconds_total", "1.5", ",part=\"forward\"")));
  CHECK(has(sample("part_seconds_total", "1", ",part=\"wait_tp\"")));
  CHECK(has(sample("mfu_full_ratio", "0.5")));
  CHECK(has(sample("hfu_ratio", "0.625")));
  CHECK(has(sample("skipped_steps_total", "1", ",why=\"spike\"")));
  CHECK(has(sample("skipped_steps_total", "0", ",why=\"not_finite\"")));
  CHECK(has(sample("saves_total", "2")));
  CHECK(has(sample("save_stall_seconds_total", "0.25")));
  CHECK(has(sample("last_checkpoint_step", "20")));
  CHECK(has(sample("checkpoint_bytes", "1000")));
  CHECK(has(sample("eval_loss", "3.25")));
  CHECK_FALSE(has("bits_per_byte"));
  CHECK(has(sample("choices_accuracy_ratio", "0.5", ",choices=\"quiz\"")));
}

TEST_CASE("each metric has its help and its type once, before its samples") {
  RunMetrics metrics(kFacts);
  metrics.add(page_record(21));
  metrics.add(EvalRecord{.step = 21, .val_loss = NAN, .bits_per_byte = INFINITY});
  const std::string text = metrics.text();
  std::string metric;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with("# HELP ")) {
      metric = line.substr(7, line.find(' ', 7) - 7);
      CHECK(count_of(text, "# TYPE " + metric + " ") == 1);
      CHECK(text.substr(end + 1).starts_with("# TYPE " + metric + " "));
    } else if (!line.starts_with("#")) {
      CHECK(line.starts_with(metric));
    }
  }
  CHECK_THAT(text, ContainsSubstring(sample("eval_loss", "NaN")) && ContainsSubstring(sample("eval_bits_per_byte", "+Inf")));
}

TEST_CASE("alerts and dashboard ask for metrics that a run has") {
  RunMetrics metrics(kFacts);
  metrics.add(page_record(21));
  metrics.add(EvalRecord{.step = 21, .val_loss = 3.25, .bits_per_byte = 1.5});
  metrics.add(ChoicesRecord{.step = 21, .name = "quiz"});
  metrics.add(BusyRecord{.step = 20, .slowest = 1, .ratio = 1.2, .ms = {10, 12}});
  metrics.add(SaveRecord{.step = 20, .bytes = 1000});
  GpuHealth gpu{.joules = 1, .watts = 300, .celsius = 60, .memory_celsius = 70, .throttle = 0, .rows_failed = 0, .xids = {{79, 1}}};
  gpu.ecc_uncorrected = 0;
  metrics.add(EnergyRecord{.totals = {.joules = 1},
                           .measured = true,
                           .watts = 300,
                           .cost = 1,
                           .projected_cost = 2,
                           .ranks = {{.reading = {.gpu = gpu}}}});
  const std::string text = metrics.text();
  for (const std::string file : {"alerts.yaml", "grafana.json"}) {
    const std::string page = read_text(std::string(TRIREME_SOURCE) + "/docs/operate/" + file);
    int asked = 0;
    for (size_t at = page.find("trireme_"); at != std::string::npos; at = page.find("trireme_", at + 1), ++asked) {
      const std::string name = page.substr(at, page.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at) - at);
      INFO(file << ": " << name);
      CHECK(text.find("\n" + name + "{") != std::string::npos);
    }
    CHECK(asked > 10);
  }
}

TEST_CASE("a run without a sign of life for longer than usual is not healthy") {
  RunMetrics metrics(kFacts);
  CHECK(metrics.pulse().usual == INFINITY);
  metrics.add(page_record(21));
  CHECK(metrics.pulse().usual == 60);
  CHECK(metrics.pulse().healthy());
  CHECK_FALSE((RunMetrics::Pulse{.silent = 10.5, .usual = 10}).healthy());
  metrics.add(page_record(22, 30000));
  CHECK(metrics.pulse().usual == 90);
  metrics.busy(true);
  CHECK(metrics.pulse().usual == INFINITY);
  metrics.busy(false);
  for (int64_t step = 23; step < 55; ++step) metrics.add(page_record(step));
  CHECK(metrics.pulse().usual == 60);
}

TEST_CASE("the file of metrics is replaced, once a second at most and at the end") {
  const Scratch directory;
  const std::string path = directory / "run.prom";
  RunMetricsFile file(kFacts, 0, path);
  file.finish();
  CHECK_FALSE(std::filesystem::exists(path));
  file.read(page_record(21));
  file.caught_up();
  CHECK_THAT(read_text(path), ContainsSubstring(sample("step", "21")));
  file.read(page_record(22));
  file.caught_up();
  CHECK_THAT(read_text(path), ContainsSubstring(sample("step", "21")));
  file.finish();
  CHECK_THAT(read_text(path), ContainsSubstring(sample("step", "22")));
  RunMetricsFile nowhere(kFacts, 0, directory / "absent/run.prom");
  nowhere.read(page_record(23));
  CHECK_THROWS_AS(nowhere.caught_up(), DataError);
}

TEST_CASE("names that are not UTF-8 do not spoil a page") {
  RunMetrics metrics(RunFacts{.run = "caf\xe9 \xc3\xa9\n", .version = "0", .commit = "0"});
  CHECK_THAT(metrics.text(), ContainsSubstring("trireme_ranks{run=\"caf? \xc3\xa9 \"} 1\n"));
}
