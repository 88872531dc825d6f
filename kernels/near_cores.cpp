#include "kernels/near_cores.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/file.h"

namespace trireme {

std::vector<int> cores_in(const std::string& list) {
  std::vector<int> cores;
  const char *at = list.data(), *const end = at + list.size();
  const auto number = [&](int& n) {
    const auto [stop, error] = std::from_chars(at, end, n);
    at = stop;
    return error == std::errc() && n >= 0 && n < CPU_SETSIZE;
  };
  while (at < end) {
    int first = 0, last = 0;
    if (!number(first)) return {};
    last = first;
    if (at < end && *at == '-' && (++at, !number(last))) return {};
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (at < end && *at++ != ',') return {};
  }
  return cores;
}

std::vector<int> cores_near(const std::string& bus, const std::string& devices) {
  std::string name = bus;  // CUDA writes hexadecimal digits in upper case
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.empty() || name.find('/') != std::string::npos) return {};
  const std::string list = text_of_file(devices + "/" + name + "/local_cpulist");
  return cores_in(list.substr(0, list.find('\n')));
}

int keep_to_cores(const std::vector<int>& near) {
  cpu_set_t mine, wanted;
  CPU_ZERO(&mine);
  CPU_ZERO(&wanted);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
  for (const int core : near)
    if (CPU_ISSET(core, &mine)) CPU_SET(core, &wanted);
  const bool fewer = CPU_COUNT(&wanted) > 0 && CPU_COUNT(&wanted) < CPU_COUNT(&mine);
  return CPU_COUNT(fewer && sched_setaffinity(0, sizeof wanted, &wanted) == 0 ? &wanted : &mine);
}

}  // namespace trireme
