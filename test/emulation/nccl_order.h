// Order of the emulated NCCL's calls on all ranks, as TRIREME_NCCL_ORDER had it written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme::emulation {

// Names a call that every rank has before the others' in a circle: each rank waits for another one if
// a GPU runs one at a time. "" if all calls have one order that agrees with every rank's.
inline std::string circle_of_calls(const std::string& directory) {
  std::map<std::string, std::set<std::string>> after;
  std::map<std::string, int64_t> before;  // calls directly before it
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path());
    std::string last;
    for (std::string call; std::getline(file, call); last = call) {
      before.try_emplace(call, 0);
      if (!last.empty() && after[last].insert(call).second) ++before[call];
    }
  }
  std::vector<std::string> ready;
  for (const auto& [call, count] : before)
    if (count == 0) ready.push_back(call);
  while (!ready.empty()) {
    const std::string call = ready.back();
    ready.pop_back();
    before.erase(call);
    for (const std::string& next : after[call])
      if (--before[next] == 0) ready.push_back(next);
  }
  return before.empty() ? "" : before.begin()->first;
}

}  // namespace trireme::emulation
