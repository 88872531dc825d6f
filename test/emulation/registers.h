// Registers of the emulated GPU's kernels, as docs/gpu/registers.md lists them: a block that needs
// more than a multiprocessor has is refused, as by a GPU.
#pragma once

#include <cstddef>
#include <string>

namespace trireme::emulation {

// Says what a block of so many threads lacks; "" if it fits on every architecture of the list.
// Kernels of the product that are not in the list lack their line.
std::string lacking_registers(const void* kernel, size_t threads);

// Blocks of it that run at once on a multiprocessor, by its registers and shared memory.
int blocks_at_once(const void* kernel, size_t threads, size_t shared_bytes);

}  // namespace trireme::emulation
