// A whole run with all readers of its records.
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "test/catch.h"
#include "test/train/workplace.h"
#include "train/telemetry/http_server.h"

using namespace trireme;

namespace {

int free_port() {
  return HttpServer("127.0.0.1", 0, [](const std::string&) { return HttpAnswer{}; }).port();
}

int64_t event_files_of(const Workplace& place, const std::string& run) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(place.scratch / ("runs/" + run)))
    count += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  return count;
}

double sample_of(const std::string& page, const std::string& name) {
  const size_t at = page.find("\n" + name + "{");
  REQUIRE(at != std::string::npos);
  return std::stod(page.substr(page.find("} ", at) + 2));
}

double seconds_of_steps(const Workplace& place, const std::string& run) {
  double seconds = 0;
  std::istringstream in(place.run(run, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (const Json record = Json::parse(line); record.contains("loss")) seconds += record["step_ms"].get<double>() / 1000;
  return seconds;
}

}  // namespace

TEST_CASE("the goodput of a run with three kills is that of its own times") {
  const Workplace place;
  const std::string page = place.scratch / "run.prom";
  const std::vector<std::string> settings = Workplace::arguments(
      {"train.name=killed", "train.steps=400", "train.eval_every=0", "checkpoint.every=10", "report.prometheus_file=" + page});
  for (int64_t kill = 1; kill <= 3; ++kill) {
    Process process(place.scratch.path(), settings);
    while (process.running() && place.lines("killed") < 80 * kill) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    REQUIRE(process.running());
    process.signal(SIGKILL);
    process.wait();
  }
  succeed(run_trireme(place.scratch.path(), settings));
  const double end = unix_seconds();
  std::vector<Json> starts;
  std::istringstream in(place.run("killed", "starts.jsonl"));
  for (std::string line; std::getline(in, line);) starts.push_back(Json::parse(line));
  REQUIRE(starts.size() == 4);
  CHECK(starts[0]["step"] == 0);
  for (size_t i = 1; i < 4; ++i) {
    CHECK(starts[i]["step"] > starts[i - 1]["step"]);
    CHECK(starts[i]["time"] > starts[i - 1]["time"]);
    CHECK(starts[i]["run"] == starts[0]["run"]);
  }
  // The page is written between the last step and the end of the process.
  const std::string text = read_text(page);
  const double first = starts[0]["time"], seconds = seconds_of_steps(place, "killed"), rounding = 1e-4;
  const double goodput = sample_of(text, "trireme_goodput_ratio");
  CHECK(goodput > seconds / (end - first) - rounding);
  CHECK(goodput < seconds / (sample_of(text, "trireme_last_step_timestamp_seconds") - first) + rounding);
  CHECK(sample_of(text, "trireme_restarts_total") == 3);
  CHECK_THAT(place.run("killed", "log.txt"),
             ContainsSubstring("goodput: ") && ContainsSubstring(" since the first of 4 starts were steps\n"));
}

TEST_CASE("a run with all readers has the bits of one without, and a resume continues them") {
  const Workplace place;
  const std::string page = place.scratch / "run.prom";
  const auto train = [&](const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"train.name=" + name, "train.schedule=constant"});
    succeed(place.train(settings));
  };
  const auto train_with_readers = [&](const std::string& steps) {
    train("readers", {"train.steps=" + steps, "report.tensorboard=true", "report.prometheus_file=" + page,
                      "report.metrics_port=" + std::to_string(free_port())});
  };
  train("alone", {"train.steps=30"});
  train_with_readers("20");
  CHECK_THAT(read_text(page), ContainsSubstring("trireme_step{run=\"readers\"} 20\n") &&
                                  ContainsSubstring("trireme_restored_step{run=\"readers\"} 0\n") &&
                                  ContainsSubstring("trireme_last_checkpoint_step{run=\"readers\"} 20\n") &&
                                  ContainsSubstring("trireme_saves_total{run=\"readers\"} 4\n") &&
                                  ContainsSubstring("trireme_checkpoint_interval_steps{run=\"readers\"} 5\n"));
  CHECK(event_files_of(place, "readers") == 1);
  train_with_readers("30");
  CHECK_THAT(read_text(page), ContainsSubstring("trireme_restored_step{run=\"readers\"} 20\n") &&
                                  ContainsSubstring("trireme_step_seconds_count{run=\"readers\"} 10\n"));
  CHECK(event_files_of(place, "readers") == 2);
  CHECK(event_files_of(place, "alone") == 0);
  CHECK(place.differ("alone", "readers") == 0);
}
