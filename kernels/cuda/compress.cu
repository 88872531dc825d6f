// Codes of blocks of 256 elements: a warp for each, with 8 elements of each thread, 32 apart.
#include "kernels/cuda/tile.cuh"
#include "kernels/ops/compress.h"

namespace trireme {
namespace {

constexpr int kLaneCodes = Codes::kBlock / 32;  // elements of a thread
constexpr int kCodeWarps = kThreads / 32;       // blocks of elements that a block of threads has

// Calls body(block of elements, its words); all threads of a warp have the same.
template <class Body>
__device__ void for_code_blocks(int64_t n, const Body& body) {
  const int64_t blocks = (n + Codes::kBlock - 1) / Codes::kBlock;
  for (int64_t b = int64_t{blockIdx.x} * kCodeWarps + threadIdx.x / 32; b < blocks; b += int64_t{gridDim.x} * kCodeWarps) body(b);
}
Grid grid_for_codes(int64_t n) {
  const int64_t wanted = (Codes::blocks(n) + kCodeWarps - 1) / kCodeWarps;
  return {.blocks = std::min(wanted, int64_t{multiprocessors()} * 8), .threads = kThreads};
}

// Value of element number `at` of a block's codes.
template <bool kInt8>
__device__ float said_by(const int32_t* words, int at) {
  if constexpr (kInt8)
    return std::bit_cast<float>(words[0]) * static_cast<float>(reinterpret_cast<const int8_t*>(words + 1)[at]);
  else
    return to_float(reinterpret_cast<const Bf16*>(words)[at]);
}

// Reads 4 or 6 n bytes, writes 2 n and the codes.
template <bool kInt8>
__global__ void __launch_bounds__(kThreads) encode(int32_t* codes, Bf16* next, const float* x, const Bf16* rest, int64_t n) {
  constexpr int64_t kWidth = kInt8 ? Codes::kInt8 : Codes::kBf16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_code_blocks(n, [&](int64_t b) {
    float v[kLaneCodes];
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const int64_t i = b * Codes::kBlock + k * 32 + lane;
      v[k] = i < n ? x[i] + (rest == nullptr ? 0.0f : to_float(rest[i])) : 0.0f;
      most = max(most, __float_as_uint(v[k]) & 0x7fffffffu);
    }
    int32_t* const words = codes + b * kWidth;
    const Int8Scale s = int8_scale(warp_max(most));
    if (kInt8 && lane == 0) words[0] = std::bit_cast<int32_t>(s.scale);
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const int at = k * 32 + lane;
      float said;
      if constexpr (kInt8) {
        const int code = s.finite ? static_cast<int>(rintf(v[k] * s.inverse)) : 0;
        reinterpret_cast<int8_t*>(words + 1)[at] = static_cast<int8_t>(code);
        said = s.scale * static_cast<float>(code);
      } else {
        const Bf16 code = rounded<Bf16>(v[k]);
        reinterpret_cast<Bf16*>(words)[at] = code;
        said = to_float(code);
      }
      if (b * Codes::kBlock + at < n) next[b * Codes::kBlock + at] = rounded<Bf16>(v[k] - said);
    }
  });
}

template <bool kInt8>
__global__ void __launch_bounds__(kThreads) decode(float* y, const int32_t* codes, int64_t n) {
  constexpr int64_t kWidth = kInt8 ? Codes::kInt8 : Codes::kBf16;
  for_code_blocks(n, [&](int64_t b) {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const int at = k * 32 + static_cast<int>(threadIdx.x) % 32;
      if (b * Codes::kBlock + at < n) y[b * Codes::kBlock + at] = said_by<kInt8>(codes + b * kWidth, at);
    }
  });
}

struct CodeSum {
  float* y;
  const Bf16* rest;
  const int32_t* codes;
  int64_t n, ranks, rank, blocks;  // blocks: of each rank
};

template <bool kInt8>
__global__ void __launch_bounds__(kThreads) sum_codes(CodeSum p) {
  constexpr int64_t kWidth = kInt8 ? Codes::kInt8 : Codes::kBf16;
  for_code_blocks(p.n, [&](int64_t b) {
    float sum[kLaneCodes] = {};
    for (int64_t r = 0; r < p.ranks; ++r)
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k) {
        const int at = k * 32 + static_cast<int>(threadIdx.x) % 32;
        const int64_t i = b * Codes::kBlock + at;
        if (r != p.rank)
          sum[k] += said_by<kInt8>(p.codes + (r * p.blocks + b) * kWidth, at);
        else if (i < p.n)
          sum[k] += p.y[i] + to_float(p.rest[i]);
      }
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const int64_t i = b * Codes::kBlock + k * 32 + static_cast<int>(threadIdx.x) % 32;
      if (i < p.n) p.y[i] = sum[k];
    }
  });
}

template <class T, int kN>
__global__ void __launch_bounds__(kThreads) keep_if_passed(T* kept, const T* next, const float* gate, int64_t n) {
  if (!Gate::read(gate).passes) return;
  for_packs<kN>(n, [&](auto count, int64_t i) {
    float v[count];
    load<count>(v, next + i);
    store<count>(kept + i, v);
  });
}

bool of_int8(const Tensor& codes) { return codes && codes.cols() == Codes::kInt8; }

}  // namespace

void launch(const Cuda& cuda, const Encode& op) {
  const auto kernel = of_int8(op.codes) ? encode<true> : encode<false>;
  start(cuda, grid_for_codes(op.x.size()), kernel, op.codes.as<int32_t>(), op.next.as<Bf16>(), op.x.as<float>(),
        op.rest ? op.rest.as<Bf16>() : nullptr, op.x.size());
}

void launch(const Cuda& cuda, const Decode& op) {
  const auto kernel = of_int8(op.codes) ? decode<true> : decode<false>;
  start(cuda, grid_for_codes(op.y.size()), kernel, op.y.as<float>(), op.codes.as<int32_t>(), op.y.size());
}

void launch(const Cuda& cuda, const SumCodes& op) {
  const auto kernel = of_int8(op.codes) ? sum_codes<true> : sum_codes<false>;
  start(cuda, grid_for_codes(op.y.size()), kernel,
        CodeSum{.y = op.y.as<float>(),
                .rest = op.rest.as<Bf16>(),
                .codes = op.codes ? op.codes.as<int32_t>() : nullptr,
                .n = op.y.size(),
                .ranks = op.ranks,
                .rank = op.rank,
                .blocks = op.blocks()});
}

void launch(const Cuda& cuda, const KeepIfPassed& op) {
  with_dtype(op.kept.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_packs(in_packs({op.kept, op.next}), [&](auto pack) {
      start(cuda, grid_for_packs(op.kept.size(), pack), keep_if_passed<T, pack>, op.kept.as<T>(), op.next.as<T>(),
            op.gate.as<float>(), op.kept.size());
    });
  });
}

}  // namespace trireme
