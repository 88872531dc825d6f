// A stand-in for NVIDIA's management library. The file that NVML_STANDIN names has lines "BUS KEY VALUE", and is read at each
// call. A function whose key has no line answers "not supported". KEY is:
//   uuid power energy clock highest_clock temperature memory_temperature throttle event_reasons pcie
//   ecc.TYPE.COUNTER rows (four numbers) nvlink.LINK.COUNTER
//   xid    a number; each line is one event, given once, in order, unless it stood there before events were asked for
// "init refused" as KEY VALUE of any BUS makes nvmlInit_v2 fail; "hang ..." makes every reading of that GPU take a minute.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

struct nvmlDevice_st {
  std::string bus;
  size_t events = 0;  // that were given
};
struct nvmlEventSet_st {
  std::vector<nvmlDevice_st*> devices;
};

namespace {

constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTimeout = 10, kUnknown = 999;
constexpr unsigned kMemoryTemperature = 82;

using Device = nvmlDevice_st*;

std::mutex mutex;
std::map<std::string, nvmlDevice_st> devices;  // by bus
int initialised = 0;

// The values of a key, in the order of their lines.
std::vector<std::string> values(const std::string& bus, const std::string& key) {
  const char* const file = std::getenv("NVML_STANDIN");
  std::vector<std::string> found;
  std::ifstream in(file == nullptr ? "" : file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string its_bus, its_key, value;
    words >> its_bus >> its_key >> std::ws;
    std::getline(words, value);
    if (its_key == key && (bus.empty() || its_bus == bus)) found.push_back(value);
  }
  return found;
}

std::string value(Device device, const std::string& key) {
  if (!values(device->bus, "hang").empty()) std::this_thread::sleep_for(std::chrono::minutes(1));
  const std::vector<std::string> found = values(device->bus, key);
  return initialised == 0 || found.empty() ? "" : found.back();
}

template <class Number>
int answer(Device device, const std::string& key, Number* number) {
  const std::string words = value(device, key);
  if (words.empty()) return kNotSupported;
  *number = static_cast<Number>(std::stoull(words));
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const std::lock_guard lock(mutex);
  if (!values("", "init").empty()) return kUnknown;
  ++initialised;
  return kSuccess;
}
int nvmlShutdown() {
  const std::lock_guard lock(mutex);
  --initialised;
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Device* device) {
  const std::lock_guard lock(mutex);
  if (initialised == 0 || values(bus, "uuid").empty()) return kNotFound;
  *device = &devices[bus];
  (*device)->bus = bus;
  return kSuccess;
}
int nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  const std::string words = value(device, "uuid");
  if (words.size() >= length) return kInvalid;
  std::strcpy(uuid, words.c_str());
  return kSuccess;
}
int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* energy) { return answer(device, "energy", energy); }
int nvmlDeviceGetPowerUsage(Device device, unsigned* power) { return answer(device, "power", power); }
int nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned* clock) {
  return type == 1 ? answer(device, "clock", clock) : kInvalid;
}
int nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned* clock) {
  return type == 1 ? answer(device, "highest_clock", clock) : kInvalid;
}
int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? answer(device, "temperature", celsius) : kInvalid;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return answer(device, "throttle", reasons);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  return answer(device, "event_reasons", reasons);
}
int nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter, unsigned long long* count) {
  return answer(device, "ecc." + std::to_string(type) + "." + std::to_string(counter), count);
}
int nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned link, unsigned counter, unsigned long long* count) {
  return answer(device, "nvlink." + std::to_string(link) + "." + std::to_string(counter), count);
}
int nvmlDeviceGetPcieReplayCounter(Device device, unsigned* count) { return answer(device, "pcie", count); }
int nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  std::istringstream words(value(device, "rows"));
  return words >> *corrected >> *uncorrected >> *pending >> *failed ? kSuccess : kNotSupported;
}

// As nvml.h lays it out.
struct FieldValue {
  unsigned id, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double real;
    unsigned natural;
    unsigned long long large;
  } value;
};
static_assert(sizeof(FieldValue) == 40);
int nvmlDeviceGetFieldValues(Device device, int count, FieldValue* fields) {
  for (FieldValue* field = fields; field < fields + count; ++field) {
    field->type = 1;  // an unsigned int
    field->result = field->id == kMemoryTemperature ? answer(device, "memory_temperature", &field->value.natural) : kInvalid;
  }
  return kSuccess;
}

int nvmlEventSetCreate(nvmlEventSet_st** set) {
  *set = new nvmlEventSet_st;
  return kSuccess;
}
int nvmlEventSetFree(nvmlEventSet_st* set) {
  delete set;
  return kSuccess;
}
int nvmlDeviceRegisterEvents(Device device, unsigned long long types, nvmlEventSet_st* set) {
  if (types != 8) return kNotSupported;
  set->devices.push_back(device);
  device->events = values(device->bus, "xid").size();  // later ones are given
  return kSuccess;
}
struct EventData {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);
int nvmlEventSetWait_v2(nvmlEventSet_st* set, EventData* event, unsigned milliseconds) {
  for (const Device device : set->devices) {
    const std::vector<std::string> xids = values(device->bus, "xid");
    if (device->events >= xids.size()) continue;
    *event = {device, 8, std::stoull(xids[device->events++]), ~0U, ~0U};
    return kSuccess;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return kTimeout;
}

}  // extern "C"
