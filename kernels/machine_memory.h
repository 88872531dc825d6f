// Memory of this machine, as Linux describes it: processors that have memory of their own, and the sizes of pages.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// The cores that this thread may use, by NUMA node: each reads its own node's memory fastest. Nodes without any are left out.
// Empty if unknown.
std::vector<std::vector<int>> cores_by_node(const std::string& directory = "/sys/devices/system/node");

// Whether memory comes in huge pages, which need fewer entries of a core's tables: "always", "madvise" (when a program asks, as
// this one does) or "never". Empty if unknown.
std::string huge_pages(const std::string& file = "/sys/kernel/mm/transparent_hugepage/enabled");

}  // namespace trireme
