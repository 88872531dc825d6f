// References that the tests of both norms compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "test/reference/compare.h"

namespace trireme {

inline constexpr float kNormEps = 1e-5f;

// Rows and columns: small ones, and the widths at which a kernel on a GPU keeps a row in more registers, or in none.
inline std::vector<std::pair<int64_t, int64_t>> norm_shapes() {
  std::vector<std::pair<int64_t, int64_t>> shapes{{3, 768},   {2, 4096},  {2, 4104}, {1, 8192}, {2, 8200},
                                                  {2, 16384}, {1, 32768}, {2, 515},  {2, 2052}, {1, 8191}};
  for (const int64_t rows : {1, 3, 17, 65})
    for (const int64_t cols : {1, 7, 64, 100, 257}) shapes.emplace_back(rows, cols);
  return shapes;
}

// A sum over a row is rounded in f32 at each of its terms, so that errors grow as the square root of their number.
inline double longer_sum(int64_t cols) { return std::max(1.0, std::sqrt(static_cast<double>(cols) / 256)); }
inline double inverse_bound(int64_t cols) { return 1e-6 * longer_sum(cols); }
inline double longer_error(int64_t cols) { return inverse_bound(cols) - 1e-6; }  // beyond that of a short row

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
