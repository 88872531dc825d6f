// A whole run with all readers of its records.
#include <filesystem>

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

}  // namespace

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
