#include "test/reference/gelu.h"

#include <cmath>
#include <numbers>

namespace trireme::reference {

namespace {

const double kScale = std::sqrt(2 / std::numbers::pi);

}  // namespace

Doubles gelu(const Doubles& x) {
  Doubles y;
  for (const double e : x) y.push_back(e / 2 * (1 + std::tanh(kScale * (e + 0.044715 * e * e * e))));
  return y;
}

Doubles gelu_backward(const Doubles& dy, const Doubles& x) {
  Doubles dx;
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = x[i], t = std::tanh(kScale * (e + 0.044715 * e * e * e));
    dx.push_back(dy[i] * ((1 + t) / 2 + e / 2 * (1 - t * t) * kScale * (1 + 3 * 0.044715 * e * e)));
  }
  return dx;
}

}  // namespace trireme::reference
