#include "train/telemetry/gpu_health.h"

#include <algorithm>
#include <utility>

#include "base/number_format.h"

namespace trireme {

bool has(const GpuHealth& health, const ThrottleReason& reason) {
  return health.throttle && (static_cast<uint64_t>(*health.throttle) & reason.bit) != 0;
}

// NVML's bits. An idle GPU's (1) and a display's (0x100) are left out.
const std::vector<ThrottleReason>& throttle_reasons() {
  static const std::vector<ThrottleReason> reasons{
      {.bit = 0x2, .label = "application_clocks", .words = "clocks set by the administrator", .grave = false},
      {.bit = 0x4, .label = "power_cap", .words = "power cap", .grave = false},
      {.bit = 0x8, .label = "hardware", .words = "slowdown by the hardware", .grave = true},
      {.bit = 0x10, .label = "sync_boost", .words = "clocks of its group", .grave = false},
      {.bit = 0x20, .label = "heat", .words = "heat", .grave = true},
      {.bit = 0x40, .label = "hardware_heat", .words = "heat, by the hardware", .grave = true},
      {.bit = 0x80, .label = "power_brake", .words = "power brake of the machine", .grave = true},
  };
  return reasons;
}

bool GpuHealth::throttled() const {
  return std::ranges::any_of(throttle_reasons(), [this](const ThrottleReason& reason) { return has(*this, reason); });
}

bool GpuHealth::ails() const {
  const auto grave = [this](const ThrottleReason& reason) { return reason.grave && has(*this, reason); };
  return std::ranges::any_of(throttle_reasons(), grave) || !xids.empty() || ecc_uncorrected.value_or(0) > 0 ||
         rows_failed.value_or(0) > 0;
}

Json json_of(const GpuHealth& health) {
  Json json{{"bus", health.bus}, {"uuid", health.uuid}};
  GpuHealth::visit(health, [&](const char* name, const GpuHealth::Reading& value) {
    if (value) json[name] = *value;
  });
  for (const auto& [xid, count] : health.xids) json["xids"].push_back(Json::array({xid, count}));
  return json;
}

GpuHealth gpu_health_of(const Json& json) {
  GpuHealth health{.bus = json.at("bus"), .uuid = json.at("uuid")};
  GpuHealth::visit(health, [&](const char* name, GpuHealth::Reading& value) {
    if (const Json* found = json.find(name)) value = found->get<double>();
  });
  if (const Json* xids = json.find("xids"))
    for (const Json& pair : *xids) health.xids[pair[0].get<int64_t>()] = pair[1].get<int64_t>();
  return health;
}

std::string_view xid_words(int64_t xid) {
  switch (xid) {
    case 48:
      return "double-bit ECC error: its memory has lost data";
    case 63:
      return "a memory page was retired or a row remapped: reset the GPU when the run ends";
    case 64:
      return "a memory page could not be retired or a row not remapped: replace the GPU";
    case 74:
      return "NVLink error: a link, its bridge or a switch";
    case 79:
      return "the GPU has fallen off the bus";
    case 94:
      return "contained ECC error: the process that it hit ends";
    case 95:
      return "uncontained ECC error: reset the GPU";
    case 119:
      return "the GPU's system processor (GSP) does not answer";
    case 120:
      return "error of the GPU's system processor (GSP)";
    default:
      return "";
  }
}

std::string clock_words(const GpuHealth& health) {
  std::string words;
  const auto add = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  if (health.sm_mhz && health.sm_highest_mhz) add(fixed(*health.sm_mhz, 0) + " of " + fixed(*health.sm_highest_mhz, 0) + " MHz");
  if (health.celsius) add(fixed(*health.celsius, 0) + " C");
  if (health.watts) add(fixed(*health.watts, 0) + " W");
  std::string reasons;
  for (const ThrottleReason& reason : throttle_reasons())
    if (has(health, reason)) reasons += (reasons.empty() ? "throttled: " : "; ") + std::string(reason.words);
  if (!reasons.empty()) add(reasons);
  return words;
}

}  // namespace trireme
