#include "test/reference/swiglu.h"

#include <cmath>

namespace trireme::reference {

namespace {

double silu(double z) { return z / (1 + std::exp(-z)); }
double silu_slope(double z) {
  const double s = 1 / (1 + std::exp(-z));
  return s * (1 + z * (1 - s));
}

}  // namespace

Doubles swiglu(const Doubles& x, int64_t width) {
  const size_t f = static_cast<size_t>(width);
  Doubles y;
  for (size_t row = 0; row < x.size(); row += 2 * f)
    for (size_t i = row; i < row + f; ++i) y.push_back(silu(x[i]) * x[i + f]);
  return y;
}

Doubles swiglu_backward(const Doubles& dy, const Doubles& x, int64_t width) {
  const size_t f = static_cast<size_t>(width);
  Doubles dx(x.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t gate = i / f * 2 * f + i % f, up = gate + f;
    dx[gate] = dy[i] * x[up] * silu_slope(x[gate]);
    dx[up] = dy[i] * silu(x[gate]);
  }
  return dx;
}

}  // namespace trireme::reference
