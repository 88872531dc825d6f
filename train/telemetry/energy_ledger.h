// EnergyLedger: adds up the energy and cost of a run, over its ranks and its starts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/telemetry/energy_record.h"
#include "train/telemetry/price.h"

namespace trireme {

struct EnergyOrders {
  std::optional<Price> price{};
  double co2_grams_per_kwh = 0;  // of the grid; 0: unknown
  Machines machines{};
  std::string run{};      // the run's token
  EnergyTotals before{};  // of the earlier starts
  double began = 0;       // seconds from the start of this process to the first readings
};

// The moment of a record.
struct EnergyMoment {
  int64_t step = 0;
  double tokens = 0;        // of the run
  double seconds = 0;       // since the start of this process
  double seconds_left = 0;  // until the run's end, estimated
};

class EnergyLedger {
 public:
  explicit EnergyLedger(EnergyOrders orders);

  void computed(double tokens) { fresh_tokens_ += tokens; }  // by a step of this process
  // The next record, from the newest reading of each rank; those without readings are empty. A source that is missing in some
  // records, and read again, has used what it reads above its last reading, in all the time since then.
  EnergyRecord account(const std::vector<MachineReading>& ranks, const EnergyMoment& now);
  // "energy: 1.2 kWh, 0.34 J per token, 450 g CO2; cost: 12.30 EUR, 24.10 EUR at the end"; "" before the first record.
  std::string words(bool finished) const;

 private:
  struct Meter {  // a source's last reading
    double joules = 0, seconds = 0;
  };
  void add_readings(const std::vector<MachineReading>& ranks, double now, EnergyRecord& record);
  void add_energy(EnergyRecord& record, const EnergyMoment& now);
  void add_cost(EnergyRecord& record, const EnergyMoment& now) const;

  const EnergyOrders orders_;
  EnergyRecord last_{};
  std::map<std::string, Meter> meters_{};  // by source, also those that are missing at present
  double charged_until_ = 0;               // seconds since the start of this process
  double fresh_tokens_ = 0;                // since the last record
};

}  // namespace trireme
