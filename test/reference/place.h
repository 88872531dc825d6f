// Place of the ops under test: one program tests the CPU's, another runs the same tests on CUDA.
// See test/places/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace trireme {

Place tested_place();
// True if each test runs all its sizes. False if each CUDA thread is a fiber under a sanitizer,
// which takes a hundred times as long: then some of each kind have to do.
bool thorough();
// True if 8-bit products are possible there; a GPU before Hopper has none.
bool multiplies_8_bits();
// Zeroed memory of exactly this size that the host can access too.
std::byte* take_memory(int64_t bytes);
void give_memory(std::byte* memory) noexcept;
// Waits for all work, before the host reads such memory.
void settle();

}  // namespace trireme
