// Helpers shared by kernels: elements in packs of up to 16 bytes, and sums over warps and blocks in
// a fixed order.
#pragma once

#include <bit>

#include "kernels/cuda/launch.cuh"

namespace trireme {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
template <class T>
__device__ T rounded(float x);
template <>
__device__ inline float rounded<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 rounded<Bf16>(float x) {
  return to_bf16(x);
}

// kN neighbours, loaded and stored at once. Their address is a multiple of kN elements, or of 16
// bytes if that is less.
template <class T, int kN>
struct alignas(kN * sizeof(T) < 16 ? kN * sizeof(T) : 16) Pack {
  T at[kN];
};
// Elements for full vector accesses of each thread: 8. (16 bytes of bf16, twice 16 of f32.)
constexpr int kPack = 8;

template <int kN, class T>
__device__ void load(float (&to)[kN], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, kN>*>(from);
#pragma unroll
  for (int i = 0; i < kN; ++i) to[i] = to_float(pack.at[i]);
}
// Stores a pack by one instruction. The compiler stores four bf16 one by one unless they are one number.
template <class T, int kN>
__device__ void store(T* to, const Pack<T, kN>& pack) {
  if constexpr (sizeof pack == 8)
    *reinterpret_cast<uint64_t*>(to) = std::bit_cast<uint64_t>(pack);
  else
    *reinterpret_cast<Pack<T, kN>*>(to) = pack;
}
template <int kN, class T>
__device__ void store(T* to, const float (&from)[kN]) {
  Pack<T, kN> pack;
#pragma unroll
  for (int i = 0; i < kN; ++i) pack.at[i] = rounded<T>(from[i]);
  store(to, pack);
}

// True if all of these can be accessed in packs of kPack, from each multiple of kPack elements.
inline bool in_packs(std::initializer_list<Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; });
}

// Calls f with kPack if packs are possible, else with 1; as a constant.
template <class F>
void with_packs(bool possible, const F& f) {
  possible ? f(std::integral_constant<int, kPack>{}) : f(std::integral_constant<int, 1>{});
}

// A kernel of n independent elements: calls body(begin, count) for packs of kN and, at the end, for
// single elements (count 1).
constexpr int kThreads = 256;
template <int kN, class Body>
__device__ void for_packs(int64_t n, const Body& body) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x, me = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, packs = n / kN;
  for (int64_t i = me; i < packs; i += stride) body(std::integral_constant<int, kN>{}, i * kN);
  if constexpr (kN > 1)
    for (int64_t i = packs * kN + me; i < n; i += stride) body(std::integral_constant<int, 1>{}, i);
}
// A grid for it: no more blocks than keep the GPU busy, and no more than there are packs.
inline Grid grid_for_packs(int64_t n, int pack) {
  const int64_t wanted = (n / pack + kThreads - 1) / kThreads, most = int64_t{multiprocessors()} * 8;
  return {.blocks = std::clamp<int64_t>(wanted, n > 0 ? 1 : 0, most), .threads = kThreads};
}

constexpr unsigned kAllLanes = 0xffffffffu;
template <class T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(kAllLanes, x, by);
  return x;
}
template <class T>
__device__ T warp_max(T x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, by));
  return x;
}

// The sum over the block's threads, in full warps, returned on each of them. `partial` has an
// element for each warp, and may be reused after the next barrier.
template <class T>
__device__ T block_sum(T x, T* partial) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  T sum = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : T{0};
  sum = warp_sum(sum);
  return sum;
}

}  // namespace trireme
