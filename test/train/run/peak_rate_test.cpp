// The peak that MFU divides by: kept with the run, raised by faster steps, unknown where the machine was busy.
#include "train/run/peak_rate.h"

#include <cmath>

#include "base/json.h"
#include "test/catch.h"
#include "test/train/workplace.h"

namespace trireme {
namespace {

const PeakMachine kMachine{.device = "a \"processor\"", .dtype = "bf16", .threads = 4, .ranks = 2};

}  // namespace

TEST_CASE("a step that beats the peak raises it, so MFU is never above 100 %") {
  PeakRate peak(kMachine, {.best = 2, .spread = 0.1});  // 2 GFLOP/s
  CHECK(peak.use(1e9, 1, 0) == 0.5);
  CHECK(peak.use(1e9, 0.25, 0) == 1);
  CHECK(peak.flops_per_second() == 4e9);
  CHECK(peak.use(1e9, 1, 0) == 0.25);
  CHECK(peak.describe() == "peak product rate: 4 GFLOP/s");
}

TEST_CASE("where the host is ahead of its device, one short time does not raise the peak") {
  PeakRate peak(kMachine, {.best = 2, .spread = 0});
  for (int step = 0; step < 40; ++step) {
    CHECK(peak.use(1e9, step % 8 == 6 ? 1.99 : step % 8 == 7 ? 0.01 : 1, 1) <= 1);  // a log that waits for its disk
    REQUIRE(peak.flops_per_second() == 2e9);
  }
  for (int step = 0; step < 8; ++step) (void)peak.use(1e9, 0.25, 1);
  CHECK(peak.flops_per_second() >= 3.5e9);
  CHECK(peak.flops_per_second() < 4e9);  // what the device did at most
}

TEST_CASE("where the windows of the measurement differ, the peak is unknown, and so is MFU") {
  PeakRate peak(kMachine, {.best = 2, .spread = 0.12});
  CHECK_FALSE(peak.known());
  CHECK(peak.describe() == "peak product rate unknown: 6 windows differ by 12 %, so no MFU is reported");
  CHECK(std::isnan(peak.use(1e9, 1, 0)));
  const Scratch directory;
  keep_peak(peak, directory.path());
  CHECK_FALSE(std::filesystem::exists(directory / "peak.json"));
}

TEST_CASE("a kept peak is of one device, precision, number of threads and of ranks") {
  PeakRate peak(kMachine, {.best = 2, .spread = 0});
  (void)peak.use(1e9, 0.3, 0);
  const std::optional<PeakRate> kept = PeakRate::from_json(peak.to_json(), kMachine);
  REQUIRE(kept);
  CHECK(kept->flops_per_second() == peak.flops_per_second());
  CHECK(kept->to_json() == peak.to_json());
  for (const auto change : {+[](PeakMachine& m) { m.device = "another"; }, +[](PeakMachine& m) { m.dtype = "f32"; },
                            +[](PeakMachine& m) { m.threads = 2; }, +[](PeakMachine& m) { m.ranks = 1; }}) {
    PeakMachine other = kMachine;
    change(other);
    CHECK_FALSE(PeakRate::from_json(peak.to_json(), other));
  }
  for (const char* text : {"", "{}", "[1]", "{\"device\": 3}", "null"}) CHECK_FALSE(PeakRate::from_json(text, kMachine));
  Json broken = Json::parse(peak.to_json());
  for (const Json& rate : {Json(0), Json(-1.0), Json("4"), Json(nullptr)}) {
    broken["flops_per_second"] = rate;
    CHECK_FALSE(PeakRate::from_json(broken.dump(), kMachine));
  }
}

TEST_CASE("a run continues with the peak that its directory holds, and keeps what a step has raised") {
  const Workplace place;
  succeed(place.train({"train.steps=5"}));
  if (!std::filesystem::exists(place.scratch / "runs/tiny/peak.json")) {
    CHECK_THAT(place.run("tiny", "log.txt"), ContainsSubstring("peak product rate unknown: 6 windows differ by "));
    WARN("skipped: this machine is too busy to measure a peak");
    return;
  }
  const auto set_peak = [&](double rate) {
    Json kept = Json::parse(place.run("tiny", "peak.json"));
    kept["flops_per_second"] = rate;
    write_text(place.scratch / "runs/tiny/peak.json", kept.dump());
  };
  const auto hfu_of_last_step = [&] {
    std::istringstream lines(place.run("tiny", "metrics.jsonl"));
    Json hfu;
    for (std::string line; std::getline(lines, line);)
      if (const Json object = Json::parse(line); object.contains("hfu")) hfu = object["hfu"];
    return hfu;
  };
  set_peak(1e18);
  succeed(place.train({"train.steps=6"}));
  CHECK(hfu_of_last_step() == 0);
  CHECK(Json::parse(place.run("tiny", "peak.json"))["flops_per_second"] == 1e18);
  set_peak(1);
  succeed(place.train({"train.steps=7"}));
  CHECK(hfu_of_last_step() == 1);
  CHECK(Json::parse(place.run("tiny", "peak.json"))["flops_per_second"] > 1e6);
}

}  // namespace trireme
