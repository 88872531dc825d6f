// GpuHealth: what NVIDIA's driver reports of one GPU, and words for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace trireme {

struct GpuHealth {
  using Reading = std::optional<double>;  // none: this GPU, or its driver, does not report it

  std::string bus{}, uuid{};                    // address on the PCI bus, "0000:1b:00.0"; NVIDIA's name of it
  Reading joules{};                             // since the meter began
  Reading watts{}, sm_mhz{}, sm_highest_mhz{};  // clocks of the multiprocessors: now, and the highest
  Reading celsius{}, memory_celsius{};
  Reading throttle{};                                           // bits of NVML: see throttle_reasons()
  Reading ecc_corrected{}, ecc_uncorrected{};                   // memory errors since the driver was loaded
  Reading ecc_corrected_ever{}, ecc_uncorrected_ever{};         // in the GPU's life
  Reading rows_corrected{}, rows_uncorrected{};                 // memory rows remapped, by the kind of error that caused it
  Reading rows_pending{}, rows_failed{};                        // 1: a reset will remap one; a remapping has failed
  Reading nvlink_replays{}, nvlink_recoveries{}, nvlink_crc{};  // errors, summed over the links
  Reading pcie_replays{};
  std::map<int64_t, int64_t> xids{};  // the driver's Xid errors since the meter began: count by number

  // Calls reading(name, member) for each reading. Written once for Self const or not.
  static void visit(auto& self, auto&& reading) {
    reading("joules", self.joules), reading("watts", self.watts);
    reading("sm_mhz", self.sm_mhz), reading("sm_highest_mhz", self.sm_highest_mhz);
    reading("celsius", self.celsius), reading("memory_celsius", self.memory_celsius), reading("throttle", self.throttle);
    reading("ecc_corrected", self.ecc_corrected), reading("ecc_uncorrected", self.ecc_uncorrected);
    reading("ecc_corrected_ever", self.ecc_corrected_ever), reading("ecc_uncorrected_ever", self.ecc_uncorrected_ever);
    reading("rows_corrected", self.rows_corrected), reading("rows_uncorrected", self.rows_uncorrected);
    reading("rows_pending", self.rows_pending), reading("rows_failed", self.rows_failed);
    reading("nvlink_replays", self.nvlink_replays), reading("nvlink_recoveries", self.nvlink_recoveries);
    reading("nvlink_crc", self.nvlink_crc), reading("pcie_replays", self.pcie_replays);
  }
  bool throttled() const;  // slower than it could be, by heat, power or hardware
  bool ails() const;       // needs a person: heat, hardware, an Xid, or memory that errs or cannot be mended
};

Json json_of(const GpuHealth& health);
GpuHealth gpu_health_of(const Json& json);  // JsonError if it is none

// A reason for a lower clock. `grave`: heat or hardware; a power cap is usual while a model trains.
struct ThrottleReason {
  uint64_t bit;
  std::string_view label, words;
  bool grave;
};
const std::vector<ThrottleReason>& throttle_reasons();
bool has(const GpuHealth& health, const ThrottleReason& reason);

std::string_view xid_words(int64_t xid);  // "the GPU has fallen off the bus"; "" for a number without words here

// "1200 of 1980 MHz, 71 C, 350 W, throttled: heat"; "" if nothing is known.
std::string clock_words(const GpuHealth& health);

}  // namespace trireme
