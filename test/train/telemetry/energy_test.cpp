// Energy and cost: what follows from readings, prices and earlier starts.
#include <unistd.h>

#include "base/json.h"
#include "test/catch.h"
#include "test/data/scratch.h"
#include "train/telemetry/energy_ledger.h"
#include "train/telemetry/exposition.h"
#include "train/telemetry/gpu_watch.h"
#include "train/telemetry/machine_metrics.h"
#include "train/telemetry/metrics.h"

using namespace trireme;

namespace {

MachineReading of_processors(const std::string& host, double joules) { return {.host = host, .processor_joules = joules}; }

MachineReading of_gpu(const std::string& host, const std::string& uuid, double joules) {
  return {.host = host, .gpu = GpuHealth{.bus = "0000:1b:00.0", .uuid = uuid, .joules = joules}};
}

Json line_of(const EnergyRecord& record) {
  const std::string line = json_line(record);
  REQUIRE(line.ends_with("}\n"));
  return Json::parse(line);
}

std::vector<std::string> names_of(const Json& line) {
  std::vector<std::string> names;
  for (const auto* member : line.members_in_order(false)) names.push_back(member->first);
  return names;
}

}  // namespace

TEST_CASE("a price has an amount, a currency and a unit") {
  const Machines machines{.ranks = 16, .nodes = 2, .gpus = 8};
  const std::optional<Price> price = parse_price("2.5 EUR/gpu-hour");
  REQUIRE(price);
  CHECK(price->amount == 2.5);
  CHECK(price->currency == "EUR");
  CHECK(price->per_hour(machines) == 20.);
  CHECK_FALSE(price->per_hour({.ranks = 4}));
  CHECK(parse_price("0.25 US$/rank-hour")->per_hour(machines) == 4.);
  CHECK(parse_price("12 CHF/node-hour")->per_hour(machines) == 24.);
  for (const char* wrong : {"", "2.5", "2.5 EUR", "EUR/gpu-hour", "2.5EUR/gpu-hour", "-1 EUR/gpu-hour", "nan EUR/gpu-hour",
                            "inf EUR/gpu-hour", "2.5 /gpu-hour", "2.5 EUR/hour", "2.5 EUR/gpu-hours", "2.5 E R/gpu-hour",
                            "2.5 E\"R/gpu-hour", "2,5 EUR/gpu-hour", "2.5  EUR/gpu-hour", " 2.5 EUR/gpu-hour"})
    CHECK_FALSE(parse_price(wrong));
}

TEST_CASE("metrics of energy and cost are exact") {
  EnergyLedger ledger({.price = parse_price("3.6 EUR/rank-hour"),
                       .co2_grams_per_kwh = 400,
                       .machines = {.ranks = 4, .nodes = 2},
                       .run = "r1",
                       .began = 50});
  ledger.computed(3000), ledger.computed(1000);
  // 100 s after the start of the process: 5,000 J of two nodes and two GPUs; a rank shares a GPU with another.
  const std::vector<MachineReading> first{of_processors("a", 1000), of_gpu("a", "GPU-1", 1500), of_gpu("a", "GPU-1", 1500),
                                          of_gpu("b", "GPU-2", 2000)};
  std::vector<MachineReading> ranks = first;
  ranks[3].processor_joules = 500;
  EnergyRecord record = ledger.account(ranks, {.step = 4, .tokens = 4000, .seconds = 100, .seconds_left = 900});
  CHECK(record.joules == 5000);
  CHECK(record.totals.joules == 5000);
  CHECK(record.joules_per_token == 1.25);
  CHECK(record.watts == 100.);
  CHECK(record.gpus == 2);
  CHECK(record.processor_nodes == 2);
  CHECK(record.projected_joules == 5000 + 900 * 100.);
  CHECK(record.co2_grams.value() == Approx(5000 / 3.6e6 * 400).epsilon(1e-14));
  CHECK(record.projected_co2_grams.value() == Approx(95000 / 3.6e6 * 400).epsilon(1e-14));
  CHECK(record.cost.value() == Approx(0.4).epsilon(1e-14));  // 4 ranks, 100 s
  CHECK(record.projected_cost.value() == Approx(4).epsilon(1e-14));
  CHECK(record.cost_per_billion_tokens.value() == Approx(1e5).epsilon(1e-14));
  CHECK(record.totals.rank_hours == Approx(400 / 3600.).epsilon(1e-14));
  CHECK(ledger.words(false) ==
        "energy: 1.39 Wh, 1.25 J per token, 0.556 g CO2 (2 GPUs, processors of 2 nodes); cost: 0.40 EUR, 4.00 EUR at the end");
  Json line = line_of(record);
  CHECK(names_of(line) == std::vector<std::string>{"step", "joules_per_token", "power_w", "kwh", "projected_kwh", "co2_g",
                                                   "projected_co2_g", "cost", "projected_cost", "cost_per_billion_tokens",
                                                   "currency", "rank_hours", "metered_tokens", "gpus", "throttled_gpus",
                                                   "processor_nodes", "run"});
  CHECK(line["step"] == 4);
  CHECK(line["kwh"].get<double>() == 5000 / 3.6e6);
  CHECK(line["projected_kwh"].get<double>() == 95000 / 3.6e6);
  CHECK(line["currency"] == "EUR");
  CHECK(line["run"] == "r1");
  CHECK(line["gpus"] == 2);
  // The next record counts what is new alone.
  ledger.computed(500);
  for (MachineReading& rank : ranks) {
    if (rank.processor_joules) *rank.processor_joules += 100;
    if (rank.gpu) *rank.gpu->joules += 150;
  }
  record = ledger.account(ranks, {.step = 5, .tokens = 4500, .seconds = 110, .seconds_left = 0});
  CHECK(record.totals.joules == 5500);
  CHECK(record.joules_per_token == 1.);
  CHECK(record.watts == 50.);
  CHECK(record.projected_joules == 5500.);
  CHECK(record.totals.metered_tokens == 4500);
  CHECK(ledger.words(true) == "energy: 1.53 Wh, 1.22 J per token, 0.611 g CO2 (2 GPUs, processors of 2 nodes); cost: 0.44 EUR");
}

TEST_CASE("what is not measured and what has no price has no keys") {
  EnergyLedger price({.price = parse_price("1 EUR/node-hour"), .co2_grams_per_kwh = 400, .machines = {.ranks = 4}, .run = "r"});
  price.computed(1000);
  const std::vector<MachineReading> nothing(4);
  const EnergyRecord cost = price.account(nothing, {.step = 1, .tokens = 1000, .seconds = 3600, .seconds_left = 3600});
  CHECK(names_of(line_of(cost)) ==
        std::vector<std::string>{"step", "cost", "projected_cost", "cost_per_billion_tokens", "currency", "rank_hours", "run"});
  CHECK(cost.cost == 1.);
  CHECK(price.words(false) == "cost: 1.00 EUR, 2.00 EUR at the end");
  EnergyLedger energy({.machines = {.ranks = 1}, .run = "r"});
  const EnergyRecord joules = energy.account({of_processors("a", 7.2e6)}, {.step = 1, .tokens = 0, .seconds = 10});
  CHECK(names_of(line_of(joules)) == std::vector<std::string>{"step", "power_w", "kwh", "projected_kwh", "rank_hours",
                                                              "metered_tokens", "processor_nodes", "run"});
  CHECK(energy.words(true) == "energy: 2 kWh (processors of 1 node)");
  EnergyLedger gpus({.price = parse_price("1 EUR/gpu-hour"), .machines = {.ranks = 2}, .run = "r"});
  const EnergyRecord none = gpus.account({{}, {}}, {.step = 1, .tokens = 1, .seconds = 3600});
  CHECK(names_of(line_of(none)) == std::vector<std::string>{"step", "rank_hours", "run"});
  CHECK(gpus.words(true).empty());
}

TEST_CASE("a later start continues the totals of the run, also with another price") {
  const Scratch directory;
  EnergyOrders orders{.price = parse_price("2 EUR/rank-hour"), .co2_grams_per_kwh = 500, .machines = {.ranks = 2}, .run = "r1"};
  EnergyLedger first(orders);
  first.computed(100);
  const EnergyRecord one = first.account({of_processors("a", 1.8e6), {}}, {.step = 10, .tokens = 100, .seconds = 1800});
  const std::string torn = "{\"step\": 11, \"kwh\": 9, \"rank_hours\": 9, \"run\": \"r1\"";
  EnergyRecord foreign = one;
  foreign.run = "r2", foreign.totals.cost = 77, foreign.cost = 77;
  write_text(directory / "metrics.jsonl",
             "{\"step\": 1, \"loss\": 2}\n" + json_line(one) + "{\"step\": 10, \"loss\": 2}\n" + json_line(foreign) + torn);
  orders.before = energy_totals_before(directory.path(), "r1");
  CHECK(orders.before.joules == Approx(1.8e6).epsilon(1e-14));
  CHECK(orders.before.co2_grams == 250);
  CHECK(orders.before.cost == 2);
  CHECK(orders.before.rank_hours == 1);
  CHECK(orders.before.metered_tokens == 100);
  orders.price = parse_price("4 EUR/rank-hour");
  orders.machines.ranks = 1;
  EnergyLedger second(orders);
  second.computed(100);
  const EnergyRecord two = second.account({of_processors("a", 3.6e6)}, {.step = 20, .tokens = 200, .seconds = 3600});
  CHECK(two.kwh() == Approx(1.5).epsilon(1e-14));
  CHECK(two.joules == 3.6e6);
  CHECK(two.cost == 6.);
  CHECK(two.co2_grams == 750.);
  CHECK(two.totals.rank_hours == 2);
  CHECK(two.totals.metered_tokens == 200);
  CHECK(energy_totals_before(directory.path(), "r3").rank_hours == 0);
  CHECK(energy_totals_before(directory / "absent", "r1").rank_hours == 0);
}

TEST_CASE("the totals of a run are found far from the end of its file of metrics") {
  const Scratch directory;
  const EnergyRecord record{.step = 1, .totals = {.rank_hours = 3}, .run = "r1"};
  const std::string filler = "{\"step\": 2, \"loss\": 2.5}\n";
  for (const size_t bytes : {size_t{0}, size_t{4 << 20} - json_line(record).size() / 2, size_t{9 << 20}}) {
    std::string text = filler + json_line(record);
    while (text.size() < bytes + filler.size() + json_line(record).size()) text += filler;
    write_text(directory / "metrics.jsonl", text);
    CHECK(energy_totals_before(directory.path(), "r1").rank_hours == 3);
  }
}

TEST_CASE("a machine that is no longer read keeps its energy in the run's totals") {
  EnergyLedger ledger({.machines = {.ranks = 2}, .run = "r"});
  ledger.account({of_processors("a", 100), of_processors("b", 50)}, {.step = 1, .tokens = 1, .seconds = 1});
  CHECK(ledger.account({of_processors("a", 110), {}}, {.step = 2, .tokens = 2, .seconds = 2}).totals.joules == 160);
  CHECK(ledger.account({of_processors("a", 130), {}}, {.step = 3, .tokens = 3, .seconds = 3}).totals.joules == 180);
}

TEST_CASE("a source that is missing in one reading is counted once when it is read again") {
  EnergyLedger ledger({.machines = {.ranks = 2, .gpus = 2}, .run = "r"});
  const auto account = [&](const std::vector<MachineReading>& ranks, int64_t step) {
    ledger.computed(60);
    const auto n = static_cast<double>(step);
    return ledger.account(ranks, {.step = step, .tokens = 60 * n, .seconds = 10 * n});
  };
  MachineReading lost = of_gpu("b", "GPU-2", 0);
  lost.gpu->joules.reset();
  CHECK(account({of_gpu("a", "GPU-1", 100), of_gpu("b", "GPU-2", 50)}, 1).totals.joules == 150);
  EnergyRecord record = account({of_gpu("a", "GPU-1", 110), lost}, 2);
  CHECK(record.gpus == 1);
  CHECK(record.joules == 160);
  CHECK(record.totals.joules == 160);
  CHECK(record.watts == 1.);
  record = account({of_gpu("a", "GPU-1", 120), of_gpu("b", "GPU-2", 70)}, 3);
  CHECK(record.totals.joules == 190);
  CHECK(record.watts == 2.);      // 10 J in 10 s, 20 J in 20 s
  record = account({{}, {}}, 4);  // nothing is read
  CHECK(record.totals.joules == 190);
  CHECK(record.totals.metered_tokens == 180);
  CHECK_FALSE(record.watts);
  record = account({of_gpu("a", "GPU-1", 140), of_gpu("b", "GPU-2", 110)}, 5);
  CHECK(record.joules == 250);
  CHECK(record.totals.joules == 250);
  CHECK(record.watts == 3.);  // 60 J in 20 s
  CHECK(record.joules_per_token == 0.5);
  CHECK(record.totals.metered_tokens == 300);
}

TEST_CASE("processors that cannot be read once are not counted twice, beside a rank that shares their host's name") {
  EnergyLedger ledger({.machines = {.ranks = 2}, .run = "r"});
  const auto joules = [&](const std::vector<MachineReading>& ranks, double seconds) {
    return ledger.account(ranks, {.step = 1, .seconds = seconds}).totals.joules;
  };
  CHECK(joules({of_processors("a", 100), of_processors("a", 40)}, 1) == 140);
  CHECK(joules({{}, of_processors("a", 50)}, 2) == 150);
  CHECK(joules({of_processors("a", 130), of_processors("a", 60)}, 3) == 190);
}

TEST_CASE("the page of metrics has the machine's power, energy, cost and GPUs") {
  EnergyLedger ledger(
      {.price = parse_price("36 EUR/gpu-hour"), .co2_grams_per_kwh = 360, .machines = {.ranks = 1, .gpus = 1}, .run = "r"});
  ledger.computed(50);
  GpuHealth gpu{.bus = "0000:1b:00.0", .uuid = "GPU-1", .joules = 250, .watts = 350.5, .sm_mhz = 1200, .sm_highest_mhz = 1980};
  gpu.celsius = 71, gpu.memory_celsius = 88, gpu.throttle = 36;
  gpu.ecc_corrected = 3, gpu.ecc_uncorrected = 1, gpu.ecc_corrected_ever = 30, gpu.ecc_uncorrected_ever = 10;
  gpu.rows_corrected = 5, gpu.rows_uncorrected = 6, gpu.rows_pending = 1, gpu.rows_failed = 0;
  gpu.nvlink_replays = 7, gpu.nvlink_recoveries = 11, gpu.nvlink_crc = 123, gpu.pcie_replays = 9;
  gpu.xids = {{79, 2}};
  Exposition out("x");
  write_energy(out, ledger.account({{.host = "h", .processor_joules = 750, .gpu = gpu}},
                                   {.step = 1, .tokens = 50, .seconds = 10, .seconds_left = 10}));
  const std::string text = out.text(), its = ",gpu=\"0000:1b:00.0\",rank=\"0\",host=\"h\"";
  INFO(text);
  const auto has = [&](const std::string& name, const std::string& value, const std::string& labels = "") {
    return ("\n" + text).find("\ntrireme_" + name + "{run=\"x\"" + labels + "} " + value + "\n") != std::string::npos;
  };
  CHECK(has("energy_joules_total", "1000"));
  CHECK(has("power_watts", "100"));
  CHECK(has("joules_per_token", "20"));
  CHECK(has("run_energy_kwh", prometheus_number(1000 / 3.6e6)));
  CHECK(has("run_co2_grams", prometheus_number(1000 / 3.6e6 * 360)));
  CHECK(has("run_cost", prometheus_number(10. / 3600 * 36), ",currency=\"EUR\""));
  CHECK(has("run_projected_cost", prometheus_number(10. / 3600 * 36 + 10. / 3600 * 36), ",currency=\"EUR\""));
  CHECK(has("gpu_power_watts", "350.5", its));
  CHECK(has("gpu_energy_joules_total", "250", its));
  CHECK(has("gpu_temperature_celsius", "71", its));
  CHECK(has("gpu_memory_temperature_celsius", "88", its));
  CHECK(has("gpu_sm_clock_hertz", prometheus_number(1.2e9), its));
  CHECK(has("gpu_sm_clock_highest_hertz", prometheus_number(1.98e9), its));
  CHECK(has("gpu_throttle", "1", its + ",reason=\"heat\""));
  CHECK(has("gpu_throttle", "1", its + ",reason=\"power_cap\""));
  CHECK(has("gpu_throttle", "0", its + ",reason=\"hardware\""));
  CHECK(has("gpu_ecc_errors_total", "3", its + ",kind=\"corrected\""));
  CHECK(has("gpu_ecc_errors_total", "1", its + ",kind=\"uncorrected\""));
  CHECK(has("gpu_ecc_errors_total", "30", its + ",kind=\"corrected_ever\""));
  CHECK(has("gpu_ecc_errors_total", "10", its + ",kind=\"uncorrected_ever\""));
  CHECK(has("gpu_remapped_rows", "1", its + ",kind=\"pending\""));
  CHECK(has("gpu_remapped_rows", "0", its + ",kind=\"failed\""));
  CHECK(has("gpu_nvlink_errors_total", "123", its + ",kind=\"crc\""));
  CHECK(has("gpu_pcie_replays_total", "9", its));
  CHECK(has("gpu_xid_total", "2", its + ",xid=\"79\""));
}

TEST_CASE("the page of a large run has GPUs of the first node and those that ail") {
  EnergyRecord record;
  for (int64_t rank = 0; rank < 128; ++rank) {
    MachineReading reading = of_gpu("node" + std::to_string(rank / 8), "GPU-" + std::to_string(rank), 1);
    reading.gpu->celsius = 50;
    if (rank == 77) reading.gpu->xids = {{94, 1}};
    record.ranks.push_back({rank, reading});
  }
  Exposition out("x");
  write_energy(out, record);
  CHECK(count_of(out.text(), "\ntrireme_gpu_temperature_celsius{") == 9);
  CHECK_THAT(out.text(), ContainsSubstring("rank=\"77\",host=\"node9\""));
}

TEST_CASE("a GPU's troubles are reported once each") {
  GpuWatch watch;
  EnergyRecord record{.ranks = {{.rank = 3, .reading = of_gpu("gpu-12", "GPU-1", 1)}}};
  GpuHealth& gpu = *record.ranks[0].reading.gpu;
  const auto look = [&] {
    std::vector<std::string> events;
    for (const GpuNews& one : watch.look(record)) events.push_back(one.event);
    return events;
  };
  gpu.ecc_uncorrected = 4, gpu.throttle = 4;  // brought along, and usual
  CHECK(look().empty());
  gpu.xids = {{79, 1}, {13, 1}}, gpu.throttle = 4 | 0x20, gpu.celsius = 92, gpu.sm_mhz = 1200, gpu.sm_highest_mhz = 1980;
  gpu.ecc_uncorrected = 6;
  const std::vector<GpuNews> news = watch.look(record);
  REQUIRE(news.size() == 4);
  const std::string whose = "warning: rank 3 (gpu-12, GPU 0000:1b:00.0): ";
  CHECK(news[0].event == "xid_13");
  CHECK(news[0].line == whose + "Xid 13; NVIDIA's list of Xid errors explains it");
  CHECK(news[1].event == "xid_79");
  CHECK(news[1].line == whose + "Xid 79, the GPU has fallen off the bus");
  CHECK(news[2].event == "gpu_memory");
  CHECK(news[2].line == whose + "2 memory errors that were not corrected");
  CHECK(news[3].event == "gpu_throttled");
  CHECK(news[3].line == whose + "1200 of 1980 MHz, 92 C, throttled: power cap; heat");
  CHECK(look().empty());
  gpu.xids[79] = 2, gpu.throttle = 0x80;
  CHECK(look() == std::vector<std::string>{"xid_79", "gpu_throttled"});
  gpu.throttle = 0x20;
  CHECK(look().empty());
}
