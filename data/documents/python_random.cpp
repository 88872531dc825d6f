#include "data/documents/python_random.h"

#include <bit>
#include <unordered_set>

#include "base/error.h"

namespace trireme {

namespace {

// A seed sequence with the state that init_by_array of the Mersenne Twister's authors makes from one word.
struct OneWordSeed {
  using result_type = uint32_t;
  uint32_t seed;

  template <class Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto count = static_cast<uint32_t>(end - begin);
    const auto mixed = [&](uint32_t i) {
      const auto before = static_cast<uint32_t>(begin[i - 1]);
      return before ^ (before >> 30);
    };
    begin[0] = 19650218U;
    for (uint32_t i = 1; i < count; ++i) begin[i] = 1812433253U * mixed(i) + i;
    uint32_t at = 1;
    const auto advance = [&] {
      if (++at < count) return;
      begin[0] = begin[count - 1];
      at = 1;
    };
    for (uint32_t i = 0; i < count; ++i, advance()) begin[at] = (static_cast<uint32_t>(begin[at]) ^ (mixed(at) * 1664525U)) + seed;
    for (uint32_t i = 1; i < count; ++i, advance()) begin[at] = (static_cast<uint32_t>(begin[at]) ^ (mixed(at) * 1566083941U)) - at;
    begin[0] = 0x80000000U;
  }
};

std::mt19937 engine_of(uint32_t seed) {
  OneWordSeed sequence{seed};
  return std::mt19937(sequence);
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : engine_(engine_of(seed)) {}

size_t PythonRandom::below(size_t limit) {
  const int bits = std::bit_width(limit);
  size_t drawn = limit;
  while (drawn >= limit) drawn = static_cast<uint32_t>(engine_()) >> (32 - bits);
  return drawn;
}

// A few of many are drawn again when they repeat; otherwise what was drawn leaves the pool.
std::vector<size_t> PythonRandom::sample(size_t population, size_t count) {
  require(count <= population && population < size_t{1} << 32, text("sample of ", count, " from ", population));
  size_t smallest_set = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < 3 * count) power *= 4;
    smallest_set += power;
  }
  std::vector<size_t> drawn;
  if (population <= smallest_set) {
    std::vector<size_t> pool(population);
    for (size_t i = 0; i < population; ++i) pool[i] = i;
    for (size_t left = population; drawn.size() < count; --left) {
      const size_t i = below(left);
      drawn.push_back(pool[i]);
      pool[i] = pool[left - 1];
    }
    return drawn;
  }
  std::unordered_set<size_t> seen;
  while (drawn.size() < count)
    if (const size_t i = below(population); seen.insert(i).second) drawn.push_back(i);
  return drawn;
}

}  // namespace trireme
