// Trials of the machine that a rank runs on: products, copies, memory, disk and software, before a run starts.
#pragma once

#include <functional>
#include <string>

#include "kernels/device.h"
#include "train/health/fabric_facts.h"

namespace trireme {

// Products of fixed numbers through the door for about `seconds`: their rate, and the bits of their results.
void try_products(Device& device, double seconds, MachineFacts& facts);
// Copies of `bytes` by the compute lane, on CPUs in small pieces by one thread.
void try_copies(Device& device, int64_t bytes, MachineFacts& facts);
// Writes patterns to at most `bytes` of free memory of the device and reads them again. `between` is called in between with that
// memory: tests change it there.
void try_memory(Device& device, int64_t bytes, MachineFacts& facts, const std::function<void(std::byte* memory)>& between = {});

// Space in the directory, or in the nearest one above it that exists; with `bytes` above 0 also writes them there, for about a
// second.
void try_disk(const std::string& directory, int64_t bytes, MachineFacts& facts);
// The program and the libraries that this process has loaded.
void note_software(MachineFacts& facts);

}  // namespace trireme
