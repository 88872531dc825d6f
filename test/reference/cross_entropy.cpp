#include "test/reference/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace trireme::reference {

CrossEntropy cross_entropy(const Doubles& logits, const std::vector<int64_t>& targets, double z_loss) {
  CrossEntropy r;
  const size_t classes = logits.size() / targets.size();
  for (size_t n = 0; n < targets.size(); ++n) {
    const double* x = logits.data() + n * classes;
    const double top = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t i = 0; i < classes; ++i) sum += std::exp(x[i] - top);
    const double lse = top + std::log(sum);
    r.lse.push_back(lse);
    r.loss.push_back(targets[n] < 0 ? 0 : lse - x[targets[n]] + z_loss * lse * lse);
  }
  return r;
}

Doubles cross_entropy_backward(const Doubles& logits, const std::vector<int64_t>& targets, double z_loss, double scale) {
  const Doubles lse = cross_entropy(logits, targets, z_loss).lse;
  const size_t classes = logits.size() / targets.size();
  Doubles d(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t n = i / classes;
    const double hit = targets[n] == static_cast<int64_t>(i % classes) ? 1 : 0;
    if (targets[n] >= 0) d[i] = scale * (std::exp(logits[i] - lse[n]) * (1 + 2 * z_loss * lse[n]) - hit);
  }
  return d;
}

}  // namespace trireme::reference
