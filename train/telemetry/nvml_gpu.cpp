#include "train/telemetry/nvml_gpu.h"

#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/shared_library.h"

namespace trireme {
namespace {

// The part of nvml.h that is needed here, by its names. A result of 0 is success.
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlEventSet_t = struct nvmlEventSet_st*;
union nvmlValue_t {
  double dVal;
  int siVal;
  unsigned int uiVal;
  unsigned long ulVal;
  unsigned long long ullVal;
  long long sllVal;
  unsigned short usVal;
};
struct nvmlFieldValue_t {
  unsigned int fieldId, scopeId;
  long long timestamp, latencyUsec;
  unsigned int valueType;
  nvmlReturn_t nvmlReturn;
  nvmlValue_t value;
};
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned int gpuInstanceId, computeInstanceId;
};
using Count = unsigned int;
using LongCount = unsigned long long;

constexpr unsigned kClockOfSm = 1, kTemperatureOfGpu = 0, kCorrected = 0, kUncorrected = 1, kVolatile = 0, kAggregate = 1;
constexpr unsigned kMemoryTemperature = 82, kUnsignedInt = 1;               // a field, and the type of its value
constexpr unsigned kReplay = 0, kRecovery = 1, kCrcFlit = 2, kCrcData = 3;  // errors of an NVLink
constexpr unsigned kMostLinks = 36, kMostEvents = 64;                       // of events: in one reading
constexpr LongCount kXidErrors = 8;                                         // a type of event
constexpr double kJoulesPerMillijoule = 1e-3, kWattsPerMilliwatt = 1e-3;

// A function of the library that older or newer ones may lack: nothing then.
template <class... Arguments>
class Function {
 public:
  Function(const SharedLibrary& library, const char* name) {
    try {
      function_ = library.find<nvmlReturn_t(Arguments...)>(name);
    } catch (const Error&) {
      function_ = nullptr;
    }
  }
  bool operator()(Arguments... arguments) const { return function_ != nullptr && function_(arguments...) == 0; }

 private:
  nvmlReturn_t (*function_)(Arguments...) = nullptr;
};

struct Library {
  explicit Library(const std::string& path) : library(path, "the health of GPUs") {}
  const SharedLibrary library;
  const Function<> init{library, "nvmlInit_v2"}, shutdown{library, "nvmlShutdown"};
  const Function<const char*, nvmlDevice_t*> by_bus{library, "nvmlDeviceGetHandleByPciBusId_v2"};
  const Function<nvmlDevice_t, char*, unsigned> uuid{library, "nvmlDeviceGetUUID"};
  const Function<nvmlDevice_t, LongCount*> energy{library, "nvmlDeviceGetTotalEnergyConsumption"};
  const Function<nvmlDevice_t, Count*> power{library, "nvmlDeviceGetPowerUsage"};
  const Function<nvmlDevice_t, unsigned, Count*> clock{library, "nvmlDeviceGetClockInfo"};
  const Function<nvmlDevice_t, unsigned, Count*> highest_clock{library, "nvmlDeviceGetMaxClockInfo"};
  const Function<nvmlDevice_t, unsigned, Count*> temperature{library, "nvmlDeviceGetTemperature"};
  const Function<nvmlDevice_t, int, nvmlFieldValue_t*> fields{library, "nvmlDeviceGetFieldValues"};
  const Function<nvmlDevice_t, LongCount*> throttle{library, "nvmlDeviceGetCurrentClocksThrottleReasons"};
  const Function<nvmlDevice_t, LongCount*> event_reasons{library, "nvmlDeviceGetCurrentClocksEventReasons"};  // its newer name
  const Function<nvmlDevice_t, unsigned, unsigned, LongCount*> ecc{library, "nvmlDeviceGetTotalEccErrors"};
  const Function<nvmlDevice_t, Count*, Count*, Count*, Count*> rows{library, "nvmlDeviceGetRemappedRows"};
  const Function<nvmlDevice_t, unsigned, unsigned, LongCount*> nvlink{library, "nvmlDeviceGetNvLinkErrorCounter"};
  const Function<nvmlDevice_t, Count*> pcie{library, "nvmlDeviceGetPcieReplayCounter"};
  const Function<nvmlEventSet_t*> create_events{library, "nvmlEventSetCreate"};
  const Function<nvmlDevice_t, LongCount, nvmlEventSet_t> register_events{library, "nvmlDeviceRegisterEvents"};
  const Function<nvmlEventSet_t, nvmlEventData_t*, unsigned> next_event{library, "nvmlEventSetWait_v2"};
  const Function<nvmlEventSet_t> free_events{library, "nvmlEventSetFree"};
};

}  // namespace

struct NvmlGpu::State {
  explicit State(const std::string& path) : nvml(path) {}
  ~State() {
    if (events != nullptr) nvml.free_events(events);
    if (initialised) nvml.shutdown();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The number that a function gives for this GPU, in units of `unit`.
  template <class Number, class... Given>
  GpuHealth::Reading number(const auto& function, double unit, Given... given) const {
    Number value = 0;
    if (!function(device, given..., &value)) return std::nullopt;
    return static_cast<double>(value) * unit;
  }
  GpuHealth::Reading memory_celsius() const;
  GpuHealth::Reading links(std::initializer_list<unsigned> counters) const;
  void read_memory(GpuHealth& health) const;
  void read_xids();

  const Library nvml;
  bool initialised = false;
  nvmlDevice_t device = nullptr;
  nvmlEventSet_t events = nullptr;
  std::string bus{}, uuid{};
  std::optional<double> first_joules{};
  std::map<int64_t, int64_t> xids{};
};

GpuHealth::Reading NvmlGpu::State::memory_celsius() const {
  nvmlFieldValue_t field{};
  field.fieldId = kMemoryTemperature;
  if (!nvml.fields(device, 1, &field) || field.nvmlReturn != 0 || field.valueType != kUnsignedInt) return std::nullopt;
  return field.value.uiVal;
}

// The sum over links and counters; nothing for a GPU without links.
GpuHealth::Reading NvmlGpu::State::links(std::initializer_list<unsigned> counters) const {
  GpuHealth::Reading sum;
  for (unsigned link = 0; link < kMostLinks; ++link)
    for (const unsigned counter : counters)
      if (const GpuHealth::Reading count = number<LongCount>(nvml.nvlink, 1, link, counter)) sum = sum.value_or(0) + *count;
  return sum;
}

void NvmlGpu::State::read_memory(GpuHealth& health) const {
  health.ecc_corrected = number<LongCount>(nvml.ecc, 1, kCorrected, kVolatile);
  health.ecc_uncorrected = number<LongCount>(nvml.ecc, 1, kUncorrected, kVolatile);
  health.ecc_corrected_ever = number<LongCount>(nvml.ecc, 1, kCorrected, kAggregate);
  health.ecc_uncorrected_ever = number<LongCount>(nvml.ecc, 1, kUncorrected, kAggregate);
  std::array<Count, 4> rows{};
  if (!nvml.rows(device, &rows[0], &rows[1], &rows[2], &rows[3])) return;
  health.rows_corrected = rows[0], health.rows_uncorrected = rows[1], health.rows_pending = rows[2], health.rows_failed = rows[3];
}

// Takes the events that wait, and waits for none.
void NvmlGpu::State::read_xids() {
  nvmlEventData_t event{};
  for (unsigned i = 0; i < kMostEvents && events != nullptr && nvml.next_event(events, &event, 0); ++i)
    if (event.eventType == kXidErrors && event.device == device) ++xids[static_cast<int64_t>(event.eventData)];
}

NvmlGpu::NvmlGpu(std::unique_ptr<State> state) : state_(std::move(state)) {}

NvmlGpu::~NvmlGpu() = default;

std::unique_ptr<NvmlGpu> NvmlGpu::open(const std::string& bus, const std::string& library) try {
  auto state = std::make_unique<State>(library);
  state->initialised = state->nvml.init();
  if (bus.empty() || !state->initialised || !state->nvml.by_bus(bus.c_str(), &state->device)) return nullptr;
  std::array<char, 96> uuid{};
  if (state->nvml.uuid(state->device, uuid.data(), static_cast<unsigned>(uuid.size() - 1))) state->uuid = uuid.data();
  state->bus = bus;
  if (state->nvml.create_events(&state->events)) state->nvml.register_events(state->device, kXidErrors, state->events);
  return std::make_unique<NvmlGpu>(std::move(state));
} catch (const Error&) {
  return nullptr;  // without the library
}

GpuHealth NvmlGpu::read() {
  State& s = *state_;
  const Library& nvml = s.nvml;
  GpuHealth health{.bus = s.bus, .uuid = s.uuid};
  health.joules = s.number<LongCount>(nvml.energy, kJoulesPerMillijoule);
  if (health.joules && !s.first_joules) s.first_joules = health.joules;
  if (health.joules) *health.joules -= *s.first_joules;
  health.watts = s.number<Count>(nvml.power, kWattsPerMilliwatt);
  health.sm_mhz = s.number<Count>(nvml.clock, 1, kClockOfSm);
  health.sm_highest_mhz = s.number<Count>(nvml.highest_clock, 1, kClockOfSm);
  health.celsius = s.number<Count>(nvml.temperature, 1, kTemperatureOfGpu);
  health.memory_celsius = s.memory_celsius();
  health.throttle = s.number<LongCount>(nvml.throttle, 1);
  if (!health.throttle) health.throttle = s.number<LongCount>(nvml.event_reasons, 1);
  s.read_memory(health);
  health.nvlink_replays = s.links({kReplay}), health.nvlink_recoveries = s.links({kRecovery});
  health.nvlink_crc = s.links({kCrcFlit, kCrcData});
  health.pcie_replays = s.number<Count>(nvml.pcie, 1);
  s.read_xids();
  health.xids = s.xids;
  return health;
}

}  // namespace trireme
