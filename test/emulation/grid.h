// A grid of CUDA threads on one CPU thread: block after block, each of its threads a fiber that runs until it waits for others.
//
// What it finds, and throws GridError for: barriers that not all threads of a block reach together, warp operations whose lanes
// differ, writes beyond a block's shared memory. Which block and which thread goes first changes from launch to launch: forwards,
// backwards, shuffled; a kernel that lacks a barrier gives other results from one launch to the next, or NaN, for shared memory
// begins as NaN. Grids of different CPU threads take turns.
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
constexpr size_t kMostShared = 227 << 10;  // bytes of a block on Hopper; Ampere's A100 has 163 KiB

// Runs `thread` once for each thread of the grid.
void run_grid(Dims grid, Dims block, size_t shared_bytes, const std::function<void()>& thread);

// Functions that threads call; each knows its caller.
using Site = std::source_location;
uint64_t block_number();       // another for each block of each grid, from 1
bool block_chance(int which);  // true for half of the blocks, another half for each number below 4
std::byte* shared_memory();    // the block's, at a multiple of 128
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
