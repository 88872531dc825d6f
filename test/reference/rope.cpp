#include "test/reference/rope.h"

#include <cmath>
#include <complex>
#include <numbers>

namespace trireme::reference {

double Rope::frequency(int64_t i, int64_t size) const {
  const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
  if (factor <= 1) return f;
  const double turns = original_context * f / (2 * std::numbers::pi);  // within the original context
  if (turns > high_factor) return f;
  if (turns < low_factor) return f / factor;
  return std::lerp(f / factor, f, (turns - low_factor) / (high_factor - low_factor));
}

Doubles Rope::table(int64_t positions, int64_t size) const {
  Doubles table;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < size / 2; ++i) {
      const double angle = static_cast<double>(p) * frequency(i, size);
      table.insert(table.end(), {std::cos(angle), std::sin(angle)});
    }
  return table;
}

Doubles rotate(const Doubles& x, int64_t size, const std::vector<int64_t>& positions, const Doubles& table, bool backward) {
  Doubles y = x;
  const size_t d = static_cast<size_t>(size), row = x.size() / positions.size();
  for (size_t start = 0; start < x.size(); start += d)
    for (size_t i = 0; i < d / 2; ++i) {
      const double* pair = &table.at((static_cast<size_t>(positions[start / row]) * (d / 2) + i) * 2);
      const std::complex<double> turn(pair[0], backward ? -pair[1] : pair[1]);
      const auto turned = std::complex<double>(x[start + i], x[start + i + d / 2]) * turn;
      y[start + i] = turned.real(), y[start + i + d / 2] = turned.imag();
    }
  return y;
}

Doubles columns(const Doubles& x, int64_t cols, int64_t begin, int64_t end) {
  Doubles y;
  for (size_t i = 0; i < x.size(); ++i)
    if (const int64_t c = static_cast<int64_t>(i) % cols; begin <= c && c < end) y.push_back(x[i]);
  return y;
}

}  // namespace trireme::reference
