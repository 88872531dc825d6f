// Readings of a made-up RAPL tree and of a stand-in for NVIDIA's library.
#include "train/telemetry/machine_meter.h"

#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "test/catch.h"
#include "test/train/telemetry/power_tree.h"
#include "train/telemetry/rapl.h"

using namespace trireme;

namespace {

constexpr auto kBus = "0000:1b:00.0", kOtherBus = "0000:3d:00.0";

std::string gpu_lines(const std::string& bus, const std::string& energy) {
  std::string lines;
  for (const std::string& line : {"uuid GPU-" + bus,
                                  "energy " + energy,
                                  std::string("power 698123"),
                                  std::string("clock 1200"),
                                  std::string("highest_clock 1980"),
                                  std::string("temperature 71"),
                                  std::string("memory_temperature 88"),
                                  std::string("throttle 36"),
                                  std::string("ecc.0.0 3"),
                                  std::string("ecc.1.0 1"),
                                  std::string("ecc.0.1 30"),
                                  std::string("ecc.1.1 10"),
                                  std::string("rows 5 6 1 0"),
                                  std::string("nvlink.0.0 2"),
                                  std::string("nvlink.17.0 5"),
                                  std::string("nvlink.0.1 11"),
                                  std::string("nvlink.3.2 100"),
                                  std::string("nvlink.3.3 23"),
                                  std::string("nvlink.3.4 7000"),
                                  std::string("pcie 9")})
    lines += bus + " " + line + "\n";
  return lines;
}

}  // namespace

TEST_CASE("processors' energy is that of packages and of memory of its own, each once") {
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "1000000");
  tree.domain("intel-rapl:0:0", "core", "5");
  tree.domain("intel-rapl:0:1", "uncore", "5");
  tree.domain("intel-rapl:0:2", "dram", "2000000");
  tree.domain("intel-rapl:1", "package-1", "3000000");
  tree.domain("intel-rapl:2", "psys", "7");
  tree.domain("intel-rapl-mmio:0", "package-0", "9");
  tree.domain("dtpm", "package-0", "9");
  std::filesystem::create_directories(tree.path() + "/intel-rapl");
  Rapl rapl(tree.path());
  CHECK(rapl.any());
  CHECK(rapl.joules() == 0);
  tree.set("intel-rapl:0", "1500000");
  tree.set("intel-rapl:0:2", "2250000");
  tree.set("intel-rapl:1", "4000000");
  for (const char* other : {"intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0", "dtpm"})
    tree.set(other, "800000000");
  CHECK(rapl.joules() == 1.75);
  CHECK(rapl.joules() == 1.75);
}

TEST_CASE("a processors' counter that begins again, or cannot be read for a while, loses nothing") {
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "262000000000", "262144000000");
  tree.domain("intel-rapl:1", "package-1", "1000000", "65536000000");
  Rapl rapl(tree.path());
  tree.set("intel-rapl:0", "106000000");  // 144 J to its end, and 106 J
  CHECK(rapl.joules() == 250);
  std::filesystem::remove(tree.path() + "/intel-rapl:1/energy_uj");
  CHECK(rapl.joules() == 250);
  tree.set("intel-rapl:1", "no number");
  CHECK(rapl.joules() == 250);
  tree.set("intel-rapl:1", "6000000");
  CHECK(rapl.joules() == 255);
  tree.set("intel-rapl:1", "0");
  CHECK(rapl.joules() == 255 + 65530);
}

TEST_CASE("a processors' counter without a range does not count what it lost when it begins again") {
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "5000000");
  std::filesystem::remove(tree.path() + "/intel-rapl:0/max_energy_range_uj");
  Rapl rapl(tree.path());
  tree.set("intel-rapl:0", "1000000");
  CHECK(rapl.joules() == 0);
  tree.set("intel-rapl:0", "3000000");
  CHECK(rapl.joules() == 2);
}

TEST_CASE("processors whose counters are absent or forbidden give no figure") {
  CHECK_FALSE(Rapl("").any());
  CHECK_FALSE(Rapl("/nonexistent/powercap").any());
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "5000000");
  std::filesystem::remove(tree.path() + "/intel-rapl:0/energy_uj");
  std::filesystem::create_directory(tree.path() + "/intel-rapl:0/energy_uj");  // unreadable, also for root
  tree.domain("intel-rapl:1", "package-1", "");
  CHECK_FALSE(Rapl(tree.path()).any());
  const MachineMeter meter({.powercap = tree.path(), .gpu_bus = kBus, .nvml = "/nonexistent/libnvidia-ml.so.1"});
  CHECK_FALSE(meter.latest().any());
  const auto begin = Clock::now();
  CHECK_FALSE(meter.fresh().any());
  CHECK(seconds_since(begin) < 5);  // there is nothing to wait for
  CHECK(to_text(meter.latest()).empty());
}

TEST_CASE("every reading of a GPU is what its driver says") {
  const StandInGpus gpus;
  gpus.are(gpu_lines(kBus, "5000500") + gpu_lines(kOtherBus, "77"));
  const std::unique_ptr<NvmlGpu> gpu = NvmlGpu::open(kBus, kStandInNvml);
  REQUIRE(gpu);
  CHECK(gpu->read().joules == 0.);
  gpus.are(gpu_lines(kBus, "5250750") + gpu_lines(kOtherBus, "9000000"));
  const GpuHealth health = gpu->read();
  CHECK(health.bus == kBus);
  CHECK(health.uuid == std::string("GPU-") + kBus);
  CHECK(health.joules.value() == Approx(250.25).epsilon(1e-12));
  CHECK(health.watts.value() == Approx(698.123).epsilon(1e-12));
  CHECK(health.sm_mhz == 1200.);
  CHECK(health.sm_highest_mhz == 1980.);
  CHECK(health.celsius == 71.);
  CHECK(health.memory_celsius == 88.);
  CHECK(health.throttle == 36.);
  CHECK(health.ecc_corrected == 3.);
  CHECK(health.ecc_uncorrected == 1.);
  CHECK(health.ecc_corrected_ever == 30.);
  CHECK(health.ecc_uncorrected_ever == 10.);
  CHECK(health.rows_corrected == 5.);
  CHECK(health.rows_uncorrected == 6.);
  CHECK(health.rows_pending == 1.);
  CHECK(health.rows_failed == 0.);
  CHECK(health.nvlink_replays == 7.);
  CHECK(health.nvlink_recoveries == 11.);
  CHECK(health.nvlink_crc == 123.);
  CHECK(health.pcie_replays == 9.);
  CHECK(health.xids.empty());
  CHECK(clock_words(health) == "1200 of 1980 MHz, 71 C, 698 W, throttled: power cap; heat");
  CHECK(health.throttled());
  CHECK(health.ails());
}

TEST_CASE("readings that a GPU does not have are absent, and its newer names are found") {
  const StandInGpus gpus;
  gpus.are(std::string(kBus) + " uuid GPU-a\n" + kBus + " event_reasons 1\n" + kBus + " temperature 40\n");
  const std::unique_ptr<NvmlGpu> gpu = NvmlGpu::open(kBus, kStandInNvml);
  REQUIRE(gpu);
  const GpuHealth health = gpu->read();
  int known = 0;
  GpuHealth::visit(health, [&](const char*, const GpuHealth::Reading& reading) { known += reading ? 1 : 0; });
  CHECK(known == 2);
  CHECK(health.throttle == 1.);
  CHECK(health.celsius == 40.);
  CHECK_FALSE(health.throttled());
  CHECK_FALSE(health.ails());
  CHECK(clock_words(health) == "40 C");
}

TEST_CASE("a GPU without a driver or with another address has no readings") {
  const StandInGpus gpus;
  gpus.are(gpu_lines(kBus, "1"));
  CHECK(NvmlGpu::open("", kStandInNvml) == nullptr);
  CHECK(NvmlGpu::open(kOtherBus, kStandInNvml) == nullptr);
  gpus.are(gpu_lines(kBus, "1") + "any init refused\n");
  CHECK(NvmlGpu::open(kBus, kStandInNvml) == nullptr);
}

TEST_CASE("Xid errors of a GPU are counted by number, those of this process alone") {
  const StandInGpus gpus;
  gpus.are(gpu_lines(kBus, "1"));
  const std::unique_ptr<NvmlGpu> gpu = NvmlGpu::open(kBus, kStandInNvml), other = NvmlGpu::open(kOtherBus, kStandInNvml);
  REQUIRE(gpu);
  CHECK(gpu->read().xids.empty());
  const std::string before = gpu_lines(kBus, "1") + kBus + " xid 79\n" + kBus + " xid 13\n";
  gpus.are(before);
  CHECK(gpu->read().xids == std::map<int64_t, int64_t>{{13, 1}, {79, 1}});
  gpus.are(before + kBus + " xid 79\n" + kOtherBus + " xid 48\n");
  CHECK(gpu->read().xids == std::map<int64_t, int64_t>{{13, 1}, {79, 2}});
  CHECK(gpu->read().ails());
  for (const int64_t named : {48, 63, 64, 74, 79, 94, 95, 119, 120}) CHECK_FALSE(xid_words(named).empty());
  CHECK(xid_words(79) == "the GPU has fallen off the bus");
  CHECK(xid_words(13).empty());
}

TEST_CASE("a meter reads processors and GPU, and its text reads back as the same") {
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "1000000");
  const StandInGpus gpus;
  gpus.are(gpu_lines(kBus, "1000"));
  const MachineMeter meter({.powercap = tree.path(), .gpu_bus = kBus, .nvml = kStandInNvml}, std::chrono::milliseconds(5));
  CHECK(meter.latest().processor_joules == 0.);
  tree.set("intel-rapl:0", "3500000");
  gpus.are(gpu_lines(kBus, "4000") + kBus + " xid 94\n");
  MachineReading reading = meter.fresh();
  CHECK(reading.processor_joules == 2.5);
  REQUIRE(reading.gpu);
  CHECK(reading.gpu->joules.value() == Approx(3).epsilon(1e-12));
  CHECK(reading.gpu->xids == std::map<int64_t, int64_t>{{94, 1}});
  const MachineReading back = reading_of_text(to_text(reading));
  CHECK(back.host == reading.host);
  CHECK_FALSE(back.host.empty());
  CHECK(back.processor_joules == reading.processor_joules);
  REQUIRE(back.gpu);
  CHECK(back.gpu->bus == reading.gpu->bus);
  CHECK(back.gpu->uuid == reading.gpu->uuid);
  CHECK(back.gpu->xids == reading.gpu->xids);
  std::vector<GpuHealth::Reading> there, here;
  GpuHealth::visit(*reading.gpu, [&](const char*, const GpuHealth::Reading& r) { there.push_back(r); });
  GpuHealth::visit(*back.gpu, [&](const char*, const GpuHealth::Reading& r) { here.push_back(r); });
  CHECK(there == here);
  for (const char* other : {"", "no JSON", "{}", "[1]", "{\"host\": 3}", "{\"host\": \"a\", \"gpu\": {\"bus\": 1}}"})
    CHECK_FALSE(reading_of_text(other).any());
}

TEST_CASE("a meter without a caller follows its counters once a period") {
  const PowerTree tree;
  tree.domain("intel-rapl:0", "package-0", "0", "1000000");
  const MachineMeter meter({.powercap = tree.path()}, std::chrono::milliseconds(1));
  const auto reaches = [&](double joules) {
    for (const auto begin = Clock::now(); seconds_since(begin) < 60; usleep(1000))
      if (meter.latest().processor_joules.value_or(0) > joules - 1e-9) return true;
    return false;
  };
  tree.set("intel-rapl:0", "900000");
  CHECK(reaches(0.9));
  tree.set("intel-rapl:0", "400000");
  CHECK(reaches(1.4));
  CHECK(meter.latest().processor_joules.value() == Approx(1.4).epsilon(1e-12));
}
