#include "train/telemetry/energy_ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/number_format.h"

namespace trireme {
namespace {

constexpr double kSecondsPerHour = 3600;

std::string energy_words(double joules) {
  if (joules < 3600) return significant(joules, 3) + " J";
  return joules < kJoulesPerKwh ? significant(joules / 3600, 3) + " Wh" : significant(joules / kJoulesPerKwh, 3) + " kWh";
}

std::string co2_words(double grams) {
  return (grams < 1e4 ? significant(grams, 3) + " g" : significant(grams / 1000, 3) + " kg") + " CO2";
}

std::string money(double amount, const std::string& currency) {
  return (amount < 0.1 ? significant(amount, 2) : fixed(amount, 2)) + " " + currency;
}

}  // namespace

EnergyLedger::EnergyLedger(EnergyOrders orders) : orders_(std::move(orders)) { last_.totals = orders_.before; }

// Enters what the ranks have read; ranks that share a GPU have read the same. The power is that of the sources that were read.
void EnergyLedger::add_readings(const std::vector<MachineReading>& ranks, double now, EnergyRecord& record) {
  std::set<std::string> gpus;
  const auto enter = [&](const std::string& source, double joules) {
    Meter& meter = meters_.try_emplace(source, Meter{.seconds = orders_.began}).first->second;
    joules = std::max(meter.joules, joules);
    if (now > meter.seconds) record.watts = record.watts.value_or(0) + (joules - meter.joules) / (now - meter.seconds);
    meter = {.joules = joules, .seconds = std::max(meter.seconds, now)};
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const MachineReading& reading = ranks[rank];
    if (!reading.any()) continue;
    if (reading.processor_joules) ++record.processor_nodes, enter("processors " + std::to_string(rank), *reading.processor_joules);
    MeteredRank metered{.rank = static_cast<int64_t>(rank), .reading = reading};
    const auto key = [](const MachineReading& r) { return r.gpu->uuid.empty() ? r.host + r.gpu->bus : r.gpu->uuid; };
    if (reading.gpu && !gpus.insert(key(reading)).second) metered.reading.gpu.reset();
    if (metered.reading.gpu && metered.reading.gpu->joules)
      ++record.gpus, enter("GPU " + key(reading), *metered.reading.gpu->joules);
    if (metered.reading.any()) record.ranks.push_back(std::move(metered));
  }
  for (const auto& [source, last] : meters_) record.joules += last.joules;
}

EnergyRecord EnergyLedger::account(const std::vector<MachineReading>& ranks, const EnergyMoment& now) {
  EnergyRecord record{.step = now.step, .totals = last_.totals, .run = orders_.run};
  add_readings(ranks, now.seconds, record);
  add_energy(record, now);
  add_cost(record, now);
  charged_until_ = now.seconds;
  if (record.gpus + record.processor_nodes > 0 || meters_.empty()) fresh_tokens_ = 0;  // else they wait for their energy
  return last_ = record;
}

void EnergyLedger::add_energy(EnergyRecord& record, const EnergyMoment& now) {
  const bool metered = record.gpus + record.processor_nodes > 0;
  const double joules = std::max(0.0, record.joules - last_.joules);
  record.measured = metered || record.totals.joules > 0;
  record.totals.joules += joules;
  record.totals.co2_grams += joules / kJoulesPerKwh * orders_.co2_grams_per_kwh;
  if (orders_.co2_grams_per_kwh > 0 || record.totals.co2_grams > 0) record.co2_grams = record.totals.co2_grams;
  if (!record.measured) record.co2_grams.reset();
  if (!metered) return;
  record.totals.metered_tokens += fresh_tokens_;
  if (fresh_tokens_ > 0) record.joules_per_token = joules / fresh_tokens_;
  if (now.seconds <= orders_.began) return;
  const double still = record.joules / (now.seconds - orders_.began) * now.seconds_left;
  record.projected_joules = record.totals.joules + still;
  if (record.co2_grams) record.projected_co2_grams = record.totals.co2_grams + still / kJoulesPerKwh * orders_.co2_grams_per_kwh;
}

void EnergyLedger::add_cost(EnergyRecord& record, const EnergyMoment& now) const {
  const double hours = (now.seconds - charged_until_) / kSecondsPerHour;
  record.totals.rank_hours += hours * static_cast<double>(orders_.machines.ranks);
  const std::optional<double> per_hour = orders_.price ? orders_.price->per_hour(orders_.machines) : std::nullopt;
  if (!per_hour) return;
  record.totals.cost += hours * *per_hour;
  record.cost = record.totals.cost;
  record.projected_cost = record.totals.cost + now.seconds_left / kSecondsPerHour * *per_hour;
  if (now.tokens > 0) record.cost_per_billion_tokens = record.totals.cost / now.tokens * 1e9;
  record.currency = orders_.price->currency;
}

std::string EnergyLedger::words(bool finished) const {
  std::string line;
  const EnergyTotals& totals = last_.totals;
  if (last_.measured) {
    line = "energy: " + energy_words(totals.joules);
    if (totals.metered_tokens > 0) line += ", " + significant(totals.joules / totals.metered_tokens, 3) + " J per token";
    if (last_.co2_grams) line += ", " + co2_words(*last_.co2_grams);
    std::string of = last_.gpus > 0 ? std::to_string(last_.gpus) + (last_.gpus > 1 ? " GPUs" : " GPU") : "";
    if (last_.processor_nodes > 0)
      of += (of.empty() ? "" : ", ") + std::string("processors of ") + std::to_string(last_.processor_nodes) +
            (last_.processor_nodes > 1 ? " nodes" : " node");
    if (!of.empty()) line += " (" + of + ")";
  }
  if (!last_.cost) return line;
  line += (line.empty() ? "cost: " : "; cost: ") + money(*last_.cost, last_.currency);
  return line + (finished ? "" : ", " + money(*last_.projected_cost, last_.currency) + " at the end");
}

}  // namespace trireme
