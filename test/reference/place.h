// Place of the ops under test: one program tests the CPU's, another runs the same tests on CUDA.
// See test/places/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace trireme {

Place tested_place();
// Whether each test goes through all its sizes. Not where each CUDA thread is a fiber that sanitizers watch, which takes a hundred
// times as long: there some of each kind have to do.
bool thorough();
// True if 8-bit products are possible there; a GPU before Hopper has none.
bool multiplies_8_bits();
// Zeros, exactly as many as asked for, that the host reaches, too.
std::byte* take_memory(int64_t bytes);
void give_memory(std::byte* memory) noexcept;
// Before the host looks at such memory: what was started is done.
void settle();

}  // namespace trireme
