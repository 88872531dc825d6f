#include "test/reference/rmsnorm.h"

#include <cmath>

namespace trireme::reference {

RmsNorm rmsnorm(const Doubles& x, const Doubles& gain, double eps) {
  RmsNorm r;
  const size_t cols = gain.size();
  for (size_t row = 0; row < x.size(); row += cols) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += x[row + c] * x[row + c];
    r.inv_rms.push_back(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
    for (size_t c = 0; c < cols; ++c) r.y.push_back(x[row + c] * r.inv_rms.back() * gain[c]);
  }
  return r;
}

RmsNormGradients rmsnorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gain, double eps) {
  const size_t cols = gain.size();
  RmsNormGradients g{Doubles(x.size()), Doubles(cols)};
  const Doubles inv_rms = rmsnorm(x, gain, eps).inv_rms;
  for (size_t row = 0; row < x.size(); row += cols) {
    const double r = inv_rms[row / cols];
    double along = 0;
    for (size_t c = 0; c < cols; ++c) along += dy[row + c] * gain[c] * x[row + c] / static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c) {
      g.dx[row + c] = r * dy[row + c] * gain[c] - r * r * r * along * x[row + c];
      g.dgain[c] += dy[row + c] * x[row + c] * r;
    }
  }
  return g;
}

}  // namespace trireme::reference
