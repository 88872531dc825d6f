#include "kernels/ops/compress.h"

#include <cstring>

#include "kernels/cpu/simd.h"

namespace trireme {
namespace {

// A block's elements, with zeros after the last.
using Values = float[Codes::kBlock];

uint32_t largest_magnitude(const Values& v) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < Codes::kBlock; ++i) most = std::max(most, std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu);
  return most;
}

// Writes a block's codes, and turns v into what they leave out.
void encode_int8(int32_t* words, Values& v) {
  const Int8Scale s = int8_scale(largest_magnitude(v));
  int8_t codes[Codes::kBlock] = {};
  if (s.finite)
    for (int64_t i = 0; i < Codes::kBlock; ++i) {
      // Adding 1.5 * 2^23 rounds to an integer in the low bits.
      const float rounded = (v[i] * s.inverse + 0x1.8p23f) - 0x1.8p23f;
      codes[i] = static_cast<int8_t>(static_cast<int32_t>(rounded));
    }
  for (int64_t i = 0; i < Codes::kBlock; ++i) v[i] -= s.scale * static_cast<float>(codes[i]);
  std::memcpy(words, &s.scale, sizeof s.scale);
  std::memcpy(words + 1, codes, sizeof codes);
}

void encode_bf16(int32_t* words, Values& v) {
  Bf16 codes[Codes::kBlock];
  for (int64_t i = 0; i < Codes::kBlock; ++i) codes[i] = to<Bf16>(v[i]);
  for (int64_t i = 0; i < Codes::kBlock; ++i) v[i] -= to_float(codes[i]);
  std::memcpy(words, codes, sizeof codes);
}

// v = what a block's codes say.
void decode(const int32_t* words, int64_t width, Values& v) {
  if (width == Codes::kInt8) {
    float scale;
    int8_t codes[Codes::kBlock];
    std::memcpy(&scale, words, sizeof scale);
    std::memcpy(codes, words + 1, sizeof codes);
    for (int64_t i = 0; i < Codes::kBlock; ++i) v[i] = scale * static_cast<float>(codes[i]);
  } else {
    Bf16 codes[Codes::kBlock];
    std::memcpy(static_cast<void*>(codes), words, sizeof codes);
    for (int64_t i = 0; i < Codes::kBlock; ++i) v[i] = to_float(codes[i]);
  }
}

}  // namespace

void launch(const Cpu&, const Encode& op) {
  const int64_t n = op.x.size(), width = op.codes.cols();
  const float* x = op.x.as<float>();
  const Bf16* rest = op.rest ? op.rest.as<Bf16>() : nullptr;
  auto* next = op.next.as<Bf16>();
  auto* codes = op.codes.as<int32_t>();
  for_blocks(n, Codes::kBlock, [&](int64_t begin, int64_t end) {
    Values v = {};
    const int64_t count = end - begin;
    for (int64_t i = 0; i < count; ++i) v[i] = x[begin + i] + (rest == nullptr ? 0.0f : to_float(rest[begin + i]));
    int32_t* const words = codes + begin / Codes::kBlock * width;
    width == Codes::kInt8 ? encode_int8(words, v) : encode_bf16(words, v);
    for (int64_t i = 0; i < count; ++i) next[begin + i] = to<Bf16>(v[i]);
  });
}

void launch(const Cpu&, const Decode& op) {
  auto* y = op.y.as<float>();
  const auto* codes = op.codes.as<int32_t>();
  const int64_t width = op.codes.cols();
  for_blocks(op.y.size(), Codes::kBlock, [&](int64_t begin, int64_t end) {
    Values v;
    decode(codes + begin / Codes::kBlock * width, width, v);
    std::copy_n(v, end - begin, y + begin);
  });
}

void launch(const Cpu&, const SumCodes& op) {
  const int64_t n = op.y.size(), ranks = op.ranks, blocks = op.blocks(), width = op.codes ? op.codes.cols() : 0;
  auto* y = op.y.as<float>();
  const auto* rest = op.rest.as<Bf16>();
  const int32_t* codes = op.codes ? op.codes.as<int32_t>() : nullptr;
  for_blocks(n, Codes::kBlock, [&](int64_t begin, int64_t end) {
    Values sum = {}, v = {};
    for (int64_t r = 0; r < ranks; ++r) {
      if (r == op.rank)
        for (int64_t i = begin; i < end; ++i) v[i - begin] = y[i] + to_float(rest[i]);
      else
        decode(codes + (r * blocks + begin / Codes::kBlock) * width, width, v);
      for (int64_t i = 0; i < Codes::kBlock; ++i) sum[i] += v[i];
    }
    std::copy_n(sum, end - begin, y + begin);
  });
}

void launch(const Cpu&, const KeepIfPassed& op) {
  if (!Gate::read(op.gate.as<float>()).passes) return;
  with_dtype(op.kept.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const kept = op.kept.as<T>();
    const T* const next = op.next.as<T>();
    for_blocks(op.kept.size(), kBlock, [&](int64_t begin, int64_t end) { std::copy_n(next + begin, end - begin, kept + begin); });
  });
}

}  // namespace trireme
