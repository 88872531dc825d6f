#include "test/reference/matmul.h"

namespace trireme::reference {

Doubles matmul(const Product& p, const Doubles& a, const Doubles& b, const Doubles& bias) {
  Doubles c;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(j)];
      for (int64_t l = 0; l < p.k; ++l)
        sum += a[static_cast<size_t>(p.transpose_a ? l * p.m + i : i * p.k + l)] *
               b[static_cast<size_t>(p.transpose_b ? j * p.k + l : l * p.n + j)];
      c.push_back(sum);
    }
  return c;
}

}  // namespace trireme::reference
