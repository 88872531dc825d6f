// Energy and cost of whole runs, over a made-up RAPL tree and a stand-in for NVIDIA's library.
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "test/catch.h"
#include "test/train/telemetry/power_tree.h"
#include "test/train/workplace.h"

using namespace trireme;

namespace {

std::vector<Json> energy_lines(const Workplace& place, const std::string& run) {
  std::vector<Json> lines;
  std::istringstream in(place.run(run, "metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (Json record = Json::parse_or_null(line); record.contains("rank_hours")) lines.push_back(std::move(record));
  return lines;
}

// Trains until some steps are in metrics.jsonl, then calls `meanwhile` and asks the run to stop.
void train_and_stop(const Workplace& place, const std::string& run, Process& process, const std::function<void()>& meanwhile) {
  const int64_t before = place.lines(run);
  while (process.running() && place.lines(run) < before + 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(process.running());
  meanwhile();
  const std::map<int, pid_t> ranks = launched_ranks(place.scratch.path());  // mpirun itself would end them soon
  REQUIRE(kill(ranks.empty() ? process.pid() : ranks.at(0), SIGTERM) == 0);
  const Ended ended = process.wait();
  INFO(ended.err);
  REQUIRE(Json::parse(place.run(run, "exit.json"))["code"] == 75);
}

// The directory of the stand-in, first where libraries are looked for.
class StandInFirst {
 public:
  StandInFirst() { setenv("LD_LIBRARY_PATH", kNvmlDirectory.c_str(), 1); }
  ~StandInFirst() { unsetenv("LD_LIBRARY_PATH"); }
  StandInFirst(const StandInFirst&) = delete;
  StandInFirst& operator=(const StandInFirst&) = delete;
};

}  // namespace

TEST_CASE("the energy of a run is that of its processors' counters, over all its starts") {
  const Workplace place;
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "262143000000", "262144000000");
  tree.domain("intel-rapl:0:0", "dram", "0");
  const std::string page = place.scratch / "run.prom";
  const std::vector<std::string> settings =
      Workplace::arguments({"train.name=metered", "train.steps=1000000", "train.eval_every=0", "train.grid_gco2_per_kwh=360",
                            "report.powercap=" + tree.path(), "report.prometheus_file=" + page, "report.tensorboard=true"});
  const auto start = [&](int ranks, const std::function<void()>& meanwhile) {
    Process process(place.scratch.path(), settings, ranks);
    train_and_stop(place, "metered", process, meanwhile);
  };
  start(1, [&] { tree.set("intel-rapl:0", "8000000"), tree.set("intel-rapl:0:0", "1000000"); });  // 1 + 8 J, and 1 J
  std::vector<Json> lines = energy_lines(place, "metered");
  REQUIRE_FALSE(lines.empty());
  const Json first = lines.back();
  CHECK(first["kwh"].get<double>() == Approx(10 / 3.6e6).epsilon(1e-12));
  CHECK(first["co2_g"].get<double>() == Approx(1e-3).epsilon(1e-12));
  CHECK(first["processor_nodes"] == 1);
  CHECK(first["run"] == read_text(place.scratch / "runs/metered/run.id").substr(0, 16));
  for (const char* absent : {"cost", "projected_cost", "currency", "gpus"}) CHECK_FALSE(first.contains(absent));
  CHECK_THAT(read_text(page), ContainsSubstring("trireme_energy_joules_total{run=\"metered\"} 10\n"));
  CHECK_THAT(place.run("metered", "log.txt"), ContainsSubstring("energy: 10 J, "));
  tree.set("intel-rapl:0", "100000000");  // while nothing runs
  start(2, [&] {
    tree.set("intel-rapl:0", "102000000");
    const auto begin = Clock::now();  // a line comes every ten seconds
    while (seconds_since(begin) < 120 && lines.back()["kwh"].get<double>() < 11.9 / 3.6e6) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      lines = energy_lines(place, "metered");
    }
    CHECK(lines.back()["kwh"].get<double>() == Approx(12 / 3.6e6).epsilon(1e-12));
    tree.set("intel-rapl:0", "105000000");
  });
  lines = energy_lines(place, "metered");
  CHECK(lines.back()["kwh"].get<double>() == Approx(15 / 3.6e6).epsilon(1e-12));
  CHECK(lines.back()["step"] > first["step"]);
  CHECK(lines.back()["rank_hours"] > first["rank_hours"]);
  CHECK(lines.back()["metered_tokens"].get<double>() == 256 * lines.back()["step"].get<double>());
  CHECK_THAT(read_text(page), ContainsSubstring("trireme_energy_joules_total{run=\"metered\"} 5\n"));
  CHECK_THAT(place.run("metered", "log.txt"),
             ContainsSubstring("energy: 15 J, ") && ContainsSubstring(" J per token, 0.0015 g CO2"));
}

TEST_CASE("energy is measured without changing a bit, and a run without sources has no line of it") {
  const Workplace place;
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "1000000");
  succeed(place.train({"train.name=plain"}, 2));
  succeed(place.train({"train.name=metered", "report.powercap=" + tree.path(), "train.price=3600 EUR/rank-hour"}, 2));
  CHECK(energy_lines(place, "plain").empty());
  CHECK_THAT(place.run("plain", "log.txt"), !ContainsSubstring("energy") && !ContainsSubstring("cost"));
  CHECK(place.differ("plain", "metered") == 0);
  const std::vector<Json> lines = energy_lines(place, "metered");
  REQUIRE_FALSE(lines.empty());
  CHECK(lines.back()["step"] == 20);
  CHECK(lines.back()["processor_nodes"] == 1);
  CHECK(lines.back()["kwh"] == 0);
}

TEST_CASE("the cost of a run is its price for the time of all its starts") {
  const Workplace place;
  const auto train = [&](const std::string& steps) {
    succeed(
        place.train({"train.name=priced", "train.schedule=constant", "train.price=3600 EUR/rank-hour", "train.steps=" + steps}));
    return energy_lines(place, "priced").back();
  };
  const Json first = train("20"), second = train("30");
  for (const Json& line : {first, second}) {
    CHECK(line["cost"].get<double>() == Approx(3600 * line["rank_hours"].get<double>()).epsilon(1e-12));
    CHECK(line["projected_cost"].get<double>() >= line["cost"].get<double>());
    CHECK(line["currency"] == "EUR");
    CHECK_FALSE(line.contains("kwh"));
  }
  CHECK(first["step"] == 20);
  CHECK(second["step"] == 30);
  CHECK(second["cost"] > first["cost"]);
  CHECK_THAT(place.run("priced", "log.txt"), ContainsSubstring("cost: "));
  const std::string recorded = place.run("priced", "metrics.jsonl");
  succeed(place.train({"train.name=priced", "train.schedule=constant", "train.price=3600 EUR/rank-hour", "train.steps=30"}));
  CHECK(place.run("priced", "metrics.jsonl") == recorded);  // already finished
  const Ended refused = place.train({"train.name=priced", "train.price=cheap"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("train.price=cheap: must be \"AMOUNT CURRENCY/gpu-hour\""));
}

TEST_CASE("a run on GPUs reads those of its ranks, and warns of an Xid error", "[unsanitized]") {
  const std::string program = TRIREME_BUILD "/test/trireme_emulated";
  if (!std::filesystem::exists(program)) {
    WARN("skipped: CUDA threads are emulated on x86-64 alone");
    return;
  }
  const Workplace place;
  const StandInGpus gpus;
  const StandInFirst libraries;
  const std::string bus = "0000:1b:00.0";
  const auto state = [&](const std::string& energy, const std::string& more) {
    gpus.are(bus + " uuid GPU-1\n" + bus + " energy " + energy + "\n" + bus + " power 300000\n" + bus + " temperature 64\n" + more);
  };
  state("1000000", "");
  setenv("TRIREME_EMULATED_BUS", bus.c_str(), 1);
  {
    Process process(place.scratch.path(),
                    Workplace::arguments({"train.name=gpu", "kernels.device=cuda", "train.steps=100000", "train.eval_every=0",
                                          "train.price=3600 EUR/gpu-hour"}),
                    2, program);
    train_and_stop(place, "gpu", process, [&] { state("7000000", bus + " xid 79\n"); });
  }
  unsetenv("TRIREME_EMULATED_BUS");
  const std::vector<Json> lines = energy_lines(place, "gpu");
  REQUIRE_FALSE(lines.empty());
  const Json& last = lines.back();
  CHECK(last["kwh"].get<double>() == Approx(6000 / 3.6e6).epsilon(1e-12));  // two ranks, one GPU
  CHECK(last["gpus"] == 1);
  CHECK(last["hottest_celsius"] == 64);
  CHECK(last["throttled_gpus"] == 0);
  CHECK(last["cost"].get<double>() == Approx(3600 * last["rank_hours"].get<double>()).epsilon(1e-12));
  CHECK_THAT(place.run("gpu", "log.txt"), ContainsSubstring("GPU 0000:1b:00.0): Xid 79, the GPU has fallen off the bus"));
  CHECK_THAT(place.run("gpu", "metrics.jsonl"), ContainsSubstring("\"event\": \"xid_79\""));
  CHECK_THAT(place.run("gpu", "log.txt"), ContainsSubstring("energy: 1.67 Wh, "));
}
