// References that the tests of both norms compare with.
#pragma once

#include <cmath>
#include <cstddef>

#include "test/reference/compare.h"

namespace trireme {

inline constexpr float kNormEps = 1e-5f;

inline Doubles added(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// dx is a difference that may cancel, so its error is compared with the subtracted terms, dy * gain
// * inverse, as well.
inline bool within(const HostTensor& dx, const Doubles& wanted, const HostTensor& inverse, Dtype dtype) {
  const int64_t cols = dx.size() / inverse.size();
  for (int64_t i = 0; i < dx.size(); ++i)
    if (!(std::abs(dx[i] - wanted[i]) <= rounding(dtype) * std::abs(wanted[i]) + 3e-6 * inverse[i / cols])) return false;
  return true;
}

}  // namespace trireme
