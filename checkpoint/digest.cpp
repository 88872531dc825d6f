#include "checkpoint/digest.h"

#include <bit>
#include <cstring>
#include <random>

namespace trireme {

static_assert(std::endian::native == std::endian::little, "stored bytes and digests are little-endian");

namespace {

// Steps by the golden ratio separate (index, bits) of any two elements of a tensor; the rest is
// splitmix64's finalizer.
template <class Bits>
uint64_t sum_of_mixes(const void* elements, int64_t first, int64_t count) {
  const auto* bytes = static_cast<const std::byte*>(elements);
  const uint64_t start = static_cast<uint64_t>(first) + 1;
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    uint64_t x = (start + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u + bits;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    sum += x ^ (x >> 31);
  }
  return sum;
}

}  // namespace

std::string random_id() {
  std::random_device chance;
  return hex(uint64_t{chance()} << 32 | chance());
}

std::optional<uint64_t> from_hex(std::string_view digits) {
  if (digits.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : digits) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

std::vector<uint64_t> page_digests(const void* bytes, int64_t count) {
  std::vector<uint64_t> pages(static_cast<size_t>(pages_of(count)));
  for_each_page(count, [&](int64_t i, int64_t begin, int64_t n) {
    pages[static_cast<size_t>(i)] = digest(static_cast<const std::byte*>(bytes) + begin, n);
  });
  return pages;
}

uint64_t digest_of_pages(const std::vector<uint64_t>& pages) {
  return digest(pages.data(), static_cast<int64_t>(pages.size() * sizeof(uint64_t)));
}

uint64_t element_digest(const void* elements, Dtype dtype, int64_t first, int64_t count) {
  return bytes_of(dtype) == 2 ? sum_of_mixes<uint16_t>(elements, first, count) : sum_of_mixes<uint32_t>(elements, first, count);
}

}  // namespace trireme
