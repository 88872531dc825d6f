#include "kernels/near_cores.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/core_set.h"
#include "base/file.h"

namespace trireme {

std::vector<int> cores_in(const std::string& list) {
  std::vector<int> cores;
  const char *at = list.data(), *const end = at + list.size();
  const auto number = [&](int& n) {
    const auto [stop, error] = std::from_chars(at, end, n);
    at = stop;
    return error == std::errc() && n >= 0 && n < CoreSet::kMost;
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
  const CoreSet mine = CoreSet::of_this_thread(), wanted = CoreSet(near).common(mine);
  const bool fewer = wanted.count() > 0 && wanted.count() < mine.count();
  return (fewer && wanted.keep_this_thread() ? wanted : mine).count();
}

}  // namespace trireme
