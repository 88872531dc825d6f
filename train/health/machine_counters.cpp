#include "train/health/machine_counters.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/text_stream.h"

namespace trireme {
namespace {

double number_in(const std::string& path) {
  double value = 0;
  TextReader(text_of_file(path, 4096)) >> value;
  return value;
}

// The directory of the core that runs this thread.
std::string core_directory(const std::string& root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(std::max(0, sched_getcpu()));
}

}  // namespace

CounterReader::Seen CounterReader::look() const {
  Seen seen;
  rusage own{};
  if (getrusage(RUSAGE_SELF, &own) == 0) seen.disk_faults = static_cast<double>(own.ru_majflt);
  TextReader stat(text_of_file(root_ + "/proc/stat"));
  std::string name;
  stat >> name;  // "cpu", then user nice system idle iowait irq softirq steal
  double ticks = 0;
  for (int field = 0; field < 8 && stat >> ticks; ++field) {
    seen.ticks += ticks;
    if (field == 7) seen.stolen = ticks;
  }
  seen.throttles = number_in(core_directory(root_) + "/thermal_throttle/package_throttle_count");
  return seen;
}

MachineCounters CounterReader::take() {
  const Seen now = look(), before = std::exchange(seen_, now);
  MachineCounters counters;
  counters.disk_faults = static_cast<float>(now.disk_faults - before.disk_faults);
  if (now.ticks > before.ticks) counters.stolen = static_cast<float>((now.stolen - before.stolen) / (now.ticks - before.ticks));
  counters.throttles = static_cast<float>(std::max(0.0, now.throttles - before.throttles));
  counters.clock_ghz = static_cast<float>(number_in(core_directory(root_) + "/cpufreq/scaling_cur_freq") / 1e6);
  return counters;
}

}  // namespace trireme
