// Python's random.Random(seed).sample(), for drawing the examples that lm-evaluation-harness draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace trireme {

class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  // `count` different indices below `population`, in the order of Python's sample(range(population), count), whose draws continue
  // from call to call. count <= population < 2^32.
  std::vector<size_t> sample(size_t population, size_t count);

 private:
  size_t below(size_t limit);  // a draw from [0, limit)

  std::mt19937 engine_;
};

}  // namespace trireme
