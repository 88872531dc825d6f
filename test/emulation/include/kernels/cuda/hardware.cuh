// The emulation's version of kernels/cuda/hardware.cuh.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/tensor.h"

namespace trireme {

inline unsigned char* shared_bytes() { return reinterpret_cast<unsigned char*>(emulation::shared_memory()); }

inline Bf16 to_bf16(float x) { return Bf16(x); }
inline uint32_t bf16_bits(float high, float low) { return uint32_t{Bf16(high).bits} << 16 | Bf16(low).bits; }
inline float power_of_two(float x) {
  const float y = std::exp2(x);
  return std::fpclassify(y) == FP_SUBNORMAL ? 0 : y;
}
inline float max_or_nan(float a, float b) { return a != a ? a : b > a || b != b ? b : a; }
template <class T>
uint16_t float8_bits(float high, float low) {
  return static_cast<uint16_t>(uint32_t{T(high).bits} << 8 | T(low).bits);
}

namespace emulation {

// A copy that a thread has started and not waited for.
struct Copy {
  void* to;
  const void* from;
  bool present;
  void make() const { present ? std::memcpy(to, from, 16) : std::memset(to, 0, 16); }
};
struct Copies {
  uint64_t block = 0;  // number of the block, unique over grids
  std::vector<std::vector<Copy>> groups{1};
};
inline Copies& copies_of_thread() {
  static Copies all[kMostThreads];
  Copies& mine = all[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
  if (mine.block != block_number()) mine = {.block = block_number()};
  return mine;
}

inline float element(uint32_t pair, int which) {
  return static_cast<float>(std::bit_cast<Bf16>(static_cast<uint16_t>(pair >> 16 * which)));
}

template <bool kTransposed>
void load_matrices(uint32_t (&to)[4], const void* row, Site site) {
  struct Mine {
    const void* row;
    uint32_t* to;
  } mine{row, to};
  with_warp(
      ~0u, "ldmatrix", &mine,
      [](Lanes lanes) {
        const auto of = [&](int lane) { return static_cast<Mine*>(lanes[lane]); };
        for (int lane = 0; lane < 32; ++lane)
          for (int m = 0; m < 4; ++m) {
            uint32_t pair = 0;
            for (int i = 0; i < 2; ++i) {
              const int r = kTransposed ? lane % 4 * 2 + i : lane / 4, c = kTransposed ? lane / 4 : lane % 4 * 2 + i;
              const auto* matrix_row = static_cast<const uint16_t*>(of(8 * m + r)->row);
              if (reinterpret_cast<uintptr_t>(matrix_row) % 16 != 0)
                throw GridError("ldmatrix of a row that is not at a multiple of 16");
              pair |= uint32_t{matrix_row[c]} << 16 * i;
            }
            of(lane)->to[m] = pair;
          }
      },
      site);
}

}  // namespace emulation

inline void copy_async(void* to, const void* from, bool present) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    throw emulation::GridError("cp.async of 16 bytes that are not at a multiple of 16");
  const emulation::Copy copy{to, from, present};
  if (emulation::block_chance(1)) return copy.make();
  emulation::copies_of_thread().groups.back().push_back(copy);
}
inline void end_group() { emulation::copies_of_thread().groups.emplace_back(); }
// In some blocks copies happen at once, as early as possible: this shows reads that should have
// come before. In others they happen here, as late as possible: this shows reads that did not wait.
template <int kOpen>
void wait_for_groups() {
  auto& groups = emulation::copies_of_thread().groups;
  while (groups.size() > kOpen + 1) {
    for (const auto& copy : groups.front()) copy.make();
    groups.erase(groups.begin());
  }
}

inline void load_matrices(uint32_t (&to)[4], const void* row, std::source_location at = std::source_location::current()) {
  emulation::load_matrices<false>(to, row, at);
}
inline void load_matrices_transposed(uint32_t (&to)[4], const void* row,
                                     std::source_location at = std::source_location::current()) {
  emulation::load_matrices<true>(to, row, at);
}

inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         std::source_location at = std::source_location::current()) {
  struct Mine {
    float* c;
    const uint32_t* a;
    uint32_t b[2];
  } mine{c, a, {b0, b1}};
  emulation::with_warp(
      ~0u, "mma", &mine,
      [](emulation::Lanes lanes) {
        const auto of = [&](int lane) { return static_cast<Mine*>(lanes[lane]); };
        using Row = float __attribute__((vector_size(32)));  // of 8 columns
        float left[16][16];
        Row right[16], sums[16];
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 2; ++i) {
            const int g = lane / 4, t = lane % 4 * 2 + i;
            for (int part = 0; part < 4; ++part)
              left[g + part % 2 * 8][t + part / 2 * 8] = emulation::element(of(lane)->a[part], i);
            for (int part = 0; part < 2; ++part) {
              right[t + part * 8][g] = emulation::element(of(lane)->b[part], i);
              sums[g + part * 8][t] = of(lane)->c[2 * part + i];
            }
          }
        for (int row = 0; row < 16; ++row)
          for (int k = 0; k < 16; ++k) sums[row] += left[row][k] * right[k];
        for (int lane = 0; lane < 32; ++lane)
          for (int part = 0; part < 4; ++part) of(lane)->c[part] = sums[lane / 4 + part / 2 * 8][lane % 4 * 2 + part % 2];
      },
      at);
}

}  // namespace trireme
