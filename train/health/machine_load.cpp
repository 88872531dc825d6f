#include "train/health/machine_load.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/core_set.h"
#include "base/file.h"
#include "base/number_format.h"
#include "train/health/thread_times.h"

namespace trireme {
namespace {

constexpr double kPatience = 0.2;      // seconds for one reading
constexpr size_t kNamedProcesses = 3;  // processes
constexpr double kLittle = 0.1;        // cores

std::string load_average() {
  const std::string line = text_of_file("/proc/loadavg");
  return line.substr(0, line.find(' '));
}

}  // namespace

std::map<int32_t, ProcessUse> process_uses() {
  static const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::map<int32_t, ProcessUse> uses;
  const auto begin = Clock::now();
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end && seconds_since(begin) < kPatience;
       at.increment(error)) {
    const int32_t process = std::atoi(at->path().filename().c_str());
    if (process <= 0) continue;
    ThreadStat read = thread_stat(text_of_file(at->path() / "stat"), "", ticks);
    std::ranges::replace_if(
        read.name, [](unsigned char c) { return c < 32 || c >= 127; }, '?');
    if (!read.name.empty()) uses[process] = {.name = read.name, .seconds = read.times.used};
  }
  return uses;
}

std::string busiest(const std::map<int32_t, ProcessUse>& before, const std::map<int32_t, ProcessUse>& after, double seconds,
                    const std::set<int32_t>& job) {
  struct Use {
    double cores;
    int32_t process;
    std::string name;
  };
  std::vector<Use> most;
  for (const auto& [process, use] : after) {
    const auto earlier = before.find(process);
    const double used = use.seconds - (earlier == before.end() ? 0 : earlier->second.seconds);
    if (!job.contains(process) && used > kLittle * seconds) most.push_back({used / seconds, process, use.name});
  }
  std::ranges::sort(most, [](const Use& a, const Use& b) { return a.cores > b.cores; });
  if (most.empty()) return "no other process that is visible here uses much processor time";
  std::string out = "busiest outside this job:";
  for (size_t i = 0; i < std::min(most.size(), kNamedProcesses); ++i)
    out += (i > 0 ? ", " : " ") + most[i].name + " (process " + std::to_string(most[i].process) + ") " +
           fixed(100 * most[i].cores, 0) + " %";
  return out;
}

void MachineLoad::begin() {
  before_ = process_uses();
  at_ = Clock::now();
}

std::string MachineLoad::describe(const std::set<int32_t>& job) {
  const double seconds = seconds_since(at_);
  const std::string others = begun() && seconds > 0 ? "; " + busiest(before_, process_uses(), seconds, job) : "";
  const int cores = CoreSet::of_this_thread().count();
  return "load average " + load_average() + " on " + std::to_string(cores) + (cores == 1 ? " core" : " cores") + others;
}

}  // namespace trireme
