#include "test/reference/layernorm.h"

#include <cmath>

namespace trireme::reference {

LayerNorm layernorm(const Doubles& x, const Doubles& gain, const Doubles& bias, double eps) {
  LayerNorm r;
  const size_t cols = gain.size();
  for (size_t row = 0; row < x.size(); row += cols) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) mean += x[row + c] / static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c) variance += (x[row + c] - mean) * (x[row + c] - mean) / static_cast<double>(cols);
    r.mean.push_back(mean);
    r.inv_std.push_back(1 / std::sqrt(variance + eps));
    for (size_t c = 0; c < cols; ++c) r.y.push_back((x[row + c] - mean) * r.inv_std.back() * gain[c] + bias[c]);
  }
  return r;
}

LayerNormGradients layernorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gain, double eps) {
  const size_t cols = gain.size();
  const double width = static_cast<double>(cols);
  LayerNormGradients g{Doubles(x.size()), Doubles(cols), Doubles(cols)};
  const LayerNorm forward = layernorm(x, gain, Doubles(cols), eps);
  for (size_t row = 0; row < x.size(); row += cols) {
    const double r = forward.inv_std[row / cols];
    const auto z = [&](size_t c) { return (x[row + c] - forward.mean[row / cols]) * r; };
    double along = 0, level = 0;
    for (size_t c = 0; c < cols; ++c) along += dy[row + c] * gain[c] * z(c) / width, level += dy[row + c] * gain[c] / width;
    for (size_t c = 0; c < cols; ++c) {
      g.dx[row + c] = r * (dy[row + c] * gain[c] - level - z(c) * along);
      g.dgain[c] += dy[row + c] * z(c);
      g.dbias[c] += dy[row + c];
    }
  }
  return g;
}

}  // namespace trireme::reference
