#include "train/telemetry/machine_metrics.h"

#include <string>
#include <utility>
#include <vector>

namespace trireme {
namespace {

struct GpuSeries {
  const GpuHealth& gpu;
  std::string labels;
};
using Series = std::vector<GpuSeries>;

Series series_of(const EnergyRecord& record) {
  size_t gpus = 0;
  for (const MeteredRank& rank : record.ranks) gpus += rank.reading.gpu ? 1 : 0;
  Series series;
  for (const auto& [rank, reading] : record.ranks) {
    if (!reading.gpu) continue;
    const bool here = reading.host == record.ranks.front().reading.host;
    if (gpus > kMostGpuSeries && !here && !reading.gpu->ails()) continue;
    series.push_back({*reading.gpu, label("gpu", reading.gpu->bus) + "," + label("rank", std::to_string(rank)) + "," +
                                        label("host", reading.host)});
  }
  return series;
}

using Member = GpuHealth::Reading GpuHealth::*;

// A metric with one sample for each GPU that reports it, or for each GPU and kind.
struct GpuMetric {
  const char *name, *type, *help;
  std::vector<std::pair<const char*, Member>> kinds;
  double unit = 1;
};

void write_metric(Exposition& out, const Series& series, const GpuMetric& metric) {
  bool begun = false;
  for (const auto& [gpu, labels] : series)
    for (const auto& [kind, member] : metric.kinds) {
      if (!(gpu.*member)) continue;
      if (!std::exchange(begun, true)) out.metric(metric.name, metric.type, metric.help);
      out.sample(*(gpu.*member) * metric.unit, labels + (metric.kinds.size() > 1 ? "," + label("kind", kind) : ""));
    }
}

void write_throttling(Exposition& out, const Series& series) {
  bool begun = false;
  for (const auto& [gpu, labels] : series) {
    if (!gpu.throttle) continue;
    if (!std::exchange(begun, true)) out.metric("gpu_throttle", "gauge", "1: the GPU's clock is lowered for this reason.");
    for (const ThrottleReason& reason : throttle_reasons())
      out.sample(has(gpu, reason) ? 1 : 0, labels + "," + label("reason", std::string(reason.label)));
  }
}

void write_xids(Exposition& out, const Series& series) {
  bool begun = false;
  for (const auto& [gpu, labels] : series)
    for (const auto& [xid, count] : gpu.xids) {
      if (!std::exchange(begun, true)) out.metric("gpu_xid_total", "counter", "Xid errors of the driver during this process.");
      out.sample(static_cast<double>(count), labels + "," + label("xid", std::to_string(xid)));
    }
}

void write_gpus(Exposition& out, const Series& series) {
  using G = GpuHealth;
  const std::vector<GpuMetric> metrics{
      {"gpu_power_watts", "gauge", "Power of the GPU.", {{"", &G::watts}}},
      {"gpu_energy_joules_total", "counter", "Energy of the GPU during this process.", {{"", &G::joules}}},
      {"gpu_temperature_celsius", "gauge", "Temperature of the GPU.", {{"", &G::celsius}}},
      {"gpu_memory_temperature_celsius", "gauge", "Temperature of the GPU's memory.", {{"", &G::memory_celsius}}},
      {"gpu_sm_clock_hertz", "gauge", "Clock of the multiprocessors.", {{"", &G::sm_mhz}}, 1e6},
      {"gpu_sm_clock_highest_hertz", "gauge", "The highest clock that they may have.", {{"", &G::sm_highest_mhz}}, 1e6},
      {"gpu_ecc_errors_total",
       "counter",
       "Memory errors since the driver was loaded; _ever: in the GPU's life.",
       {{"corrected", &G::ecc_corrected},
        {"uncorrected", &G::ecc_uncorrected},
        {"corrected_ever", &G::ecc_corrected_ever},
        {"uncorrected_ever", &G::ecc_uncorrected_ever}}},
      {"gpu_remapped_rows",
       "gauge",
       "Memory rows remapped after errors; pending: 1 until a reset; failed: 1 if one could not be.",
       {{"corrected", &G::rows_corrected},
        {"uncorrected", &G::rows_uncorrected},
        {"pending", &G::rows_pending},
        {"failed", &G::rows_failed}}},
      {"gpu_nvlink_errors_total",
       "counter",
       "Errors of the GPU's NVLinks.",
       {{"replay", &G::nvlink_replays}, {"recovery", &G::nvlink_recoveries}, {"crc", &G::nvlink_crc}}},
      {"gpu_pcie_replays_total", "counter", "Messages that were repeated on the PCI bus.", {{"", &G::pcie_replays}}},
  };
  for (const GpuMetric& metric : metrics) write_metric(out, series, metric);
  write_throttling(out, series);
  write_xids(out, series);
}

}  // namespace

void write_energy(Exposition& out, const EnergyRecord& r) {
  const auto gauge = [&](const char* name, const char* help, const EnergyRecord::Figure& value) {
    if (value) out.gauge(name, help, *value);
  };
  if (r.processor_nodes + r.gpus > 0) out.counter("energy_joules_total", "Energy that this process has measured.", r.joules);
  gauge("power_watts", "Mean power since the record before.", r.watts);
  gauge("joules_per_token", "Energy of a token since the record before.", r.joules_per_token);
  if (r.measured) out.gauge("run_energy_kwh", "Energy of the run, over all its starts.", r.kwh());
  gauge("run_co2_grams", "The same in grams of CO2, by train.grid_gco2_per_kwh.", r.co2_grams);
  if (r.cost) {
    out.metric("run_cost", "gauge", "Cost of the run, over all its starts, by train.price.")
        .sample(*r.cost, label("currency", r.currency));
    out.metric("run_projected_cost", "gauge", "The same at the run's end, estimated.")
        .sample(r.projected_cost.value_or(*r.cost), label("currency", r.currency));
  }
  if (const Series series = series_of(r); !series.empty()) write_gpus(out, series);
}

}  // namespace trireme
