#include "test/reference/fill.h"

#include <numeric>

namespace trireme::reference {

double sum(const Doubles& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

double squared_norm(const Doubles& x) { return dot(x, x); }

Doubles bias_backward(const Doubles& dy, int64_t cols) {
  Doubles dbias(static_cast<size_t>(cols));
  for (size_t i = 0; i < dy.size(); ++i) dbias[i % dbias.size()] += dy[i];
  return dbias;
}

}  // namespace trireme::reference
