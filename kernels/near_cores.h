// Cores near a GPU: those of its NUMA node, whose memory its copies reach without another processor.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Cores of a list as Linux writes it: "0-2,8" gives 0 1 2 8. Empty if it is something else.
std::vector<int> cores_in(const std::string& list);

// Cores near the PCI device `bus` ("0000:1b:00.0") by the files of `devices`; empty if unknown.
std::vector<int> cores_near(const std::string& bus, const std::string& devices = "/sys/bus/pci/devices");

// Keeps this thread, and threads that it starts from now on, to those of its cores that are in
// `near`. Changes nothing if it may use none of them: the launcher has bound it elsewhere. Returns
// the number of cores that it may use.
int keep_to_cores(const std::vector<int>& near);

}  // namespace trireme
