#include "train/telemetry/machine_meter.h"

#include <utility>

#include "parallel/world.h"
#include "train/telemetry/loose_thread.h"
#include "train/telemetry/rapl.h"

namespace trireme {

std::string to_text(const MachineReading& reading) {
  if (!reading.any()) return "";
  Json json{{"host", reading.host}};
  if (reading.processor_joules) json["processor_joules"] = *reading.processor_joules;
  if (reading.gpu) json["gpu"] = json_of(*reading.gpu);
  return json.dump();
}

MachineReading reading_of_text(const std::string& text) try {
  if (text.empty()) return {};
  const Json json = Json::parse(text);
  MachineReading reading{.host = json.at("host")};
  if (const Json* joules = json.find("processor_joules")) reading.processor_joules = joules->get<double>();
  if (const Json* gpu = json.find("gpu")) reading.gpu = gpu_health_of(*gpu);
  return reading;
} catch (const JsonError&) {
  return {};
}

struct MachineMeter::State : LooseState {
  explicit State(const MeterSources& sources) : sources(sources) {}

  const MeterSources sources;
  Clock::duration period{};
  MachineReading reading;
  int64_t taken = 0, wanted = 1;  // readings; one more is taken when more are wanted
};

MachineMeter::MachineMeter(const MeterSources& sources, Clock::duration period) {
  if (sources.powercap.empty() && sources.gpu_bus.empty()) return;
  state_ = std::make_unique<State>(sources);
  state_->period = period;
  thread_ = std::thread([state = state_.get()] { watch(*state); });
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kPatience, [&] { return state_->taken > 0 || state_->done; });
}

MachineMeter::~MachineMeter() {
  if (!thread_.joinable()) return;
  end_or_leave(state_, thread_, kPatience, [] {});
}

MachineReading MachineMeter::latest() const {
  if (!state_) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->reading;
}

MachineReading MachineMeter::fresh() const {
  if (!state_) return {};
  std::unique_lock lock(state_->mutex);
  const int64_t wanted = state_->wanted = state_->taken + 2;  // the one that is under way may have begun before
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return state_->taken >= wanted || state_->done; });
  return state_->reading;
}

void MachineMeter::watch(State& state) {
  name_watcher_thread();
  const std::string host = host_name();
  Rapl rapl(state.sources.powercap);
  const std::unique_ptr<NvmlGpu> gpu = NvmlGpu::open(state.sources.gpu_bus, state.sources.nvml);
  std::unique_lock lock(state.mutex);
  while (!state.ended) {
    lock.unlock();
    MachineReading reading{.host = host};
    if (rapl.any()) reading.processor_joules = rapl.joules();
    if (gpu) reading.gpu = gpu->read();
    lock.lock();
    state.reading = std::move(reading);
    ++state.taken;
    state.changed.notify_all();
    if (!rapl.any() && !gpu) break;
    state.changed.wait_for(lock, state.period, [&] { return state.ended || state.taken < state.wanted; });
  }
  lock.unlock();
  end_loose_thread(state);
}

}  // namespace trireme
