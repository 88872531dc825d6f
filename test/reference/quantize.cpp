#include "test/reference/quantize.h"

#include <algorithm>
#include <cmath>

namespace trireme::reference {

Doubles numbers_of_8_bits(Dtype dtype) {
  const bool e4m3 = dtype == Dtype::e4m3;
  const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, last = e4m3 ? 0x7e : 0x7b;
  Doubles numbers;
  for (int bits = 0; bits <= last; ++bits) {
    const int exponent = bits >> mantissa, rest = bits & ((1 << mantissa) - 1);
    const double digits = (exponent > 0 ? 1 : 0) + std::ldexp(rest, -mantissa);
    numbers.push_back(std::ldexp(digits, std::max(exponent, 1) - bias));
  }
  return numbers;
}

double nearest_of_8_bits(Dtype dtype, double x) {
  const Doubles numbers = numbers_of_8_bits(dtype);
  const double size = std::min(std::abs(x), numbers.back());
  size_t best = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    const double now = std::abs(size - numbers[i]), before = std::abs(size - numbers[best]);
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return std::copysign(numbers[best], x);
}

Quantized quantize(Dtype dtype, const Doubles& x) {
  const double largest = numbers_of_8_bits(dtype).back();
  double most = std::ldexp(1, -100);
  for (const double element : x) most = std::max(most, std::abs(element));
  Quantized q{.y = {}, .scale = static_cast<float>(most / largest)};
  const float inverse = static_cast<float>(largest / most);
  for (const double element : x) q.y.push_back(nearest_of_8_bits(dtype, static_cast<float>(element) * inverse));
  return q;
}

Doubles transpose(const Doubles& x, int64_t rows, int64_t cols) {
  Doubles y(x.size());
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t c = 0; c < cols; ++c) y[static_cast<size_t>(c * rows + n)] = x[static_cast<size_t>(n * cols + c)];
  return y;
}

}  // namespace trireme::reference
