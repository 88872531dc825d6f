// PeakRate: the rate of matrix products that MFU (model FLOPs utilisation) divides by, kept in RUN/peak.json.
//
// A rank measures it at the first start on a machine. Other programs can only lower a measurement, so a step that beats the peak
// raises it, and MFU is never above 1. If the measuring windows disagree, the peak is unknown, and the next start measures again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "kernels/device.h"
#include "kernels/tune/rates.h"
#include "parallel/mesh.h"
#include "train/config/config.h"
#include "train/step/plan.h"

namespace trireme {

// Everything that a peak depends on: a kept peak of another machine is ignored.
struct PeakMachine {
  std::string device, dtype;
  int64_t threads = 1, ranks = 1;
  bool operator==(const PeakMachine&) const = default;
};

class PeakRate {
 public:
  PeakRate() = default;  // unknown
  PeakRate(PeakMachine machine, const SteadyRate& measured);

  bool known() const { return flops_per_second_ > 0; }
  double flops_per_second() const { return flops_per_second_; }  // of one rank; 0: unknown
  // One line: the rate, or why it is unknown.
  std::string describe() const;

  // Use by a step that computes `flops` FLOPs a rank in `seconds`, 0 to 1; NaN where the peak is unknown. `ahead` is how
  // many steps the host may be ahead of its device, which blurs the time of a single step.
  double use(double flops, double seconds, int64_t ahead);

  // The text of peak.json, and back. nullopt for what is not a peak of `machine`.
  std::string to_json() const;
  static std::optional<PeakRate> from_json(const std::string& json, const PeakMachine& machine);

 private:
  PeakMachine machine_;
  double flops_per_second_ = 0, spread_ = 0;
  std::deque<double> recent_;  // seconds of the last steps
};

// The words for a device and for the precision of products, such as "bf16 with products in fp8".
std::string name_of_device(const Device& device);
std::string precision_of(const KernelsConfig& config);

// All ranks together, before the device is frozen: the peak of RUN/peak.json, or one measured on all ranks at once, since they
// share cores. The value of rank 0 counts.
PeakRate find_peak(const RunConfig& config, const Plan& plan, const Mesh& mesh, Device& device, const std::string& directory);

// On rank 0: writes directory/peak.json unless the peak is unknown. If the disk refuses, the next start measures again.
void keep_peak(const PeakRate& peak, const std::string& directory);

}  // namespace trireme
