#include "test/reference/adamw.h"

#include <cmath>

namespace trireme::reference {

void adamw(Moments& state, const Doubles& grad, double squared_norm, const AdamWOptions& o) {
  if (!std::isfinite(squared_norm)) return;
  const double b1 = o.beta1, b2 = o.beta2, t = static_cast<double>(o.step), norm = std::sqrt(squared_norm);
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = o.clip > 0 && norm > o.clip ? grad[i] * o.clip / norm : grad[i];
    double &m = state.m[i], &v = state.v[i], &w = state.master[i];
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    w -= o.lr * (m / (1 - std::pow(b1, t)) / (std::sqrt(v / (1 - std::pow(b2, t))) + o.eps) + o.decay * w);
  }
}

}  // namespace trireme::reference
