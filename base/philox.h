// Counter-based random numbers: each value is a pure function of (key, counter). Any rank, thread
// or GPU gets the same bits for the same element without sharing state. Philox 4x32 with 10 rounds
// (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace trireme {

// Turns the four words of a counter into those of its random number. Without arrays and loops, so
// that the loop around it can be vectorised.
constexpr void philox_rounds(uint64_t key, uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const auto round = [&] {
    const uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  };
  round(), round(), round(), round(), round();
  round(), round(), round(), round(), round();
}

constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32),
           c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  philox_rounds(key, c0, c1, c2, c3);
  return {c0, c1, c2, c3};
}

// 64 mixed bits of (key, counter).
constexpr uint64_t philox64(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  const auto c = philox(key, counter_low, counter_high);
  return (static_cast<uint64_t>(c[0]) << 32) | c[1];
}

// Uniform in (0, 1) with 53 bits; never 0 or 1.
constexpr double unit(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

// Standard normal, element `index` of the stream `key` (Box and Muller 1958).
inline double normal(uint64_t key, uint64_t index) {
  const auto c = philox(key, index);
  const double u = unit((static_cast<uint64_t>(c[0]) << 32) | c[1]), v = unit((static_cast<uint64_t>(c[2]) << 32) | c[3]);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

// A key for a named stream of a seed: FNV-1a over the name, mixed with the seed.
constexpr uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return philox64(seed, h, 0x7472697265ull);
}

}  // namespace trireme
