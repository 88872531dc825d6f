// MachineMeter: the energy of this rank's part of the machine, and its GPU's health, read once a second by a thread of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "train/telemetry/gpu_health.h"
#include "train/telemetry/nvml_gpu.h"

namespace trireme {

constexpr auto kPowercap = "/sys/class/powercap";

// The sources of one rank.
struct MeterSources {
  std::string powercap{};    // directory of the processors' counters; "": another rank of this node reads them
  std::string gpu_bus{};     // address of the rank's GPU; "": none
  std::string nvml = kNvml;  // NVIDIA's library
};

// One rank's readings. Energy counts from the meter's beginning; none: not measured.
struct MachineReading {
  std::string host{};
  std::optional<double> processor_joules{};  // of the node, on one of its ranks
  std::optional<GpuHealth> gpu{};

  bool any() const { return processor_joules || gpu; }
};

std::string to_text(const MachineReading& reading);       // "" for a reading of nothing
MachineReading reading_of_text(const std::string& text);  // nothing for another text

// Sources that are absent or may not be read give no readings. None of the calls waits for a GPU that no longer answers.
class MachineMeter {
 public:
  static constexpr std::chrono::seconds kPeriod{1}, kPatience{10};

  // Takes the first readings, from which energy counts.
  explicit MachineMeter(const MeterSources& sources, Clock::duration period = kPeriod);
  ~MachineMeter();
  MachineMeter(const MachineMeter&) = delete;
  MachineMeter& operator=(const MachineMeter&) = delete;

  MachineReading latest() const;  // at most a period old
  MachineReading fresh() const;   // taken now; the latest if that takes too long

 private:
  struct State;
  static void watch(State& state);

  std::unique_ptr<State> state_;  // none without sources, or once the thread owns it
  std::thread thread_;
};

}  // namespace trireme
