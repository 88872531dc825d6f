// Runs a grid of CUDA threads on one CPU thread: block after block, each thread a fiber that runs
// until it waits for others.
//
// It throws GridError for barriers that not all threads of a block reach together, for warp
// operations whose lanes differ, and for writes beyond a block's shared memory. The order of blocks
// and threads changes from launch to launch: forwards, backwards, shuffled. Shared memory begins as
// NaN. So a kernel without a needed barrier gives different results or NaN. Grids of different CPU
// threads take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

namespace trireme::emulation {

struct GridError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Dims {
  unsigned x = 1, y = 1, z = 1;
  size_t count() const { return size_t{x} * y * z; }
};

struct Place3 {
  unsigned x, y, z;
};

constexpr size_t kMostThreads = 1024;
// A fact of the emulated GPU, which a variable of the environment may change.
size_t fact(const char* name, size_t usual);
// Bytes per block: 227 KiB as on Hopper. TRIREME_EMULATED_SHARED_KIB=163 makes it an A100.
inline size_t most_shared() { return fact("TRIREME_EMULATED_SHARED_KIB", 227) << 10; }

// Runs `thread` once for each thread of the grid.
void run_grid(Dims grid, Dims block, size_t shared_bytes, const std::function<void()>& thread);

// Functions that threads call; each knows its caller.
using Site = std::source_location;
uint64_t block_number();       // unique for each block of each grid, from 1
bool block_chance(int which);  // true for half of the blocks; a different half for each number below 4
std::byte* shared_memory();    // of the block, aligned to 128 bytes
void sync_threads(Site site);
// A joint operation of the lanes of a warp: apply(lanes) is called once, when all lanes of the mask
// have arrived, with each one's argument; nullptr for others. Then all continue.
using Lanes = void* const*;  // [32]
void with_warp(unsigned mask, const char* op, void* mine, void (*apply)(Lanes, const void* context), const void* context,
               Site site);
template <class Apply>
void with_warp(unsigned mask, const char* op, void* mine, const Apply& apply, Site site) {
  with_warp(
      mask, op, mine, [](Lanes lanes, const void* context) { (*static_cast<const Apply*>(context))(lanes); }, &apply, site);
}

}  // namespace trireme::emulation

// Position of the running thread, in CUDA's own names.
extern trireme::emulation::Place3 threadIdx, blockIdx;
extern trireme::emulation::Dims blockDim, gridDim;
