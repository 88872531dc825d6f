#include "train/health/thread_times.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/text_stream.h"
#include "parallel/world.h"

namespace trireme {
ThreadStat thread_stat(const std::string& stat, const std::string& schedstat, double ticks_per_second) {
  ThreadStat read;
  const size_t open = stat.find('('), close = stat.rfind(')');  // the name may hold any characters
  if (open == std::string::npos || close == std::string::npos || close < open) return read;
  read.name = stat.substr(open + 1, close - open - 1);
  TextReader numbers(stat.substr(close + 1)), exact(schedstat);
  numbers >> read.times.state;
  int64_t ticks = 0;
  for (int field = 4; field <= 41; ++field) {  // as numbered in proc(5)
    std::string word;
    if (!(numbers >> word)) break;
    const auto number = [&] { return std::strtoll(word.c_str(), nullptr, 10); };
    if (field == 14 || field == 15) ticks += number();
    if (field == 19) read.nice = number();
    if (field == 41) read.policy = number();
  }
  read.times.used = static_cast<double>(ticks) / ticks_per_second;
  int64_t ran = 0, waited = 0, turns = 0;
  if (exact >> ran >> waited >> turns && turns > 0)
    read.times.used = 1e-9 * static_cast<double>(ran), read.times.unserved = 1e-9 * static_cast<double>(waited),
    read.times.turns = turns;
  return read;
}

std::vector<ThreadTimes> threads_of(int32_t process) {
  static const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::vector<ThreadStat> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/" + std::to_string(process) + "/task", error), end; !error && at != end;
       at.increment(error)) {
    ThreadStat& read =
        all.emplace_back(thread_stat(text_of_file(at->path() / "stat"), text_of_file(at->path() / "schedstat"), ticks));
    read.times.thread = std::atoi(at->path().filename().c_str());
    if (read.name.empty()) all.pop_back();  // it has ended
  }
  const auto first = std::ranges::find_if(all, [&](const ThreadStat& t) { return t.times.thread == process; });
  std::vector<ThreadTimes> threads;
  for (ThreadStat& t : all) {
    const bool lower = first != all.end() && (t.nice > first->nice || (t.policy == SCHED_IDLE && first->policy != SCHED_IDLE));
    t.times.background = lower || t.name == kWatcherThread;
    threads.push_back(t.times);
  }
  return threads;
}

double unserved_here() {
  return thread_stat(text_of_file("/proc/thread-self/stat"), text_of_file("/proc/thread-self/schedstat"), 100).times.unserved;
}

}  // namespace trireme
