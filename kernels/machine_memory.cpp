#include "kernels/machine_memory.h"

#include <algorithm>

#include "base/core_set.h"
#include "base/file.h"
#include "kernels/near_cores.h"

namespace trireme {

std::vector<std::vector<int>> cores_by_node(const std::string& directory) {
  const auto words_of = [&](const std::string& name) {
    const std::string words = text_of_file(directory + "/" + name);
    return words.substr(0, words.find('\n'));
  };
  const CoreSet mine = CoreSet::of_this_thread();
  std::vector<std::vector<int>> nodes;
  for (const int node : cores_in(words_of("online"))) {  // a list of the same form
    std::vector<int> cores = cores_in(words_of("node" + std::to_string(node) + "/cpulist"));
    std::erase_if(cores, [&](int core) { return !mine.has(core); });
    if (!cores.empty()) nodes.push_back(std::move(cores));
  }
  return nodes;
}

std::string huge_pages(const std::string& file) {
  const std::string words = text_of_file(file);  // "always [madvise] never"
  const size_t begin = words.find('['), end = words.find(']');
  return begin < end && end != std::string::npos ? words.substr(begin + 1, end - begin - 1) : std::string();
}

}  // namespace trireme
