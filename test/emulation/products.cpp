// Emulated matrix products: sums in double, rounded once. As the real library, it fuses nothing if
// n is odd, adds biases of c's dtype only, and multiplies 8-bit numbers only in dims of 16, at
// addresses of 16 bytes and without GELU. It has two algorithms, which do the same.
#include "kernels/cuda/products.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "kernels/ops/matmul.h"
#include "test/emulation/numbers.h"

namespace trireme {
namespace {

using emulation::gelu, emulation::gelu_slope, emulation::read, emulation::write;

// A matrix of rows x cols, row-major; `transposed`: column-major.
std::vector<double> unpacked(const void* x, Dtype dtype, int64_t rows, int64_t cols, bool transposed) {
  std::vector<double> all(static_cast<size_t>(rows * cols));
#pragma omp parallel for schedule(static) if (rows * cols > 100000)
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      all[static_cast<size_t>(i * cols + j)] = read(x, dtype, transposed ? j * rows + i : i * cols + j);
  return all;
}

// A row of a times b, with each sum in the order of k.
void multiply_row(const Product& p, const double* a, const double* b, double* sums) {
  std::fill_n(sums, p.n, 0.0);
  for (int64_t k = 0; k < p.k; ++k)
    for (int64_t j = 0; j < p.n; ++j) sums[j] += a[k] * b[k * p.n + j];
}

void compute(const Product& p) {
  const std::vector<double> a = unpacked(p.a, p.of_a, p.m, p.k, p.transpose_a), b = unpacked(p.b, p.of_b, p.k, p.n, p.transpose_b);
#pragma omp parallel for schedule(static) if (p.m * p.n * p.k > 100000)
  for (int64_t i = 0; i < p.m; ++i) {
    std::vector<double> row(static_cast<size_t>(p.n));
    multiply_row(p, a.data() + i * p.k, b.data(), row.data());
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * p.n + j;
      double x = row[static_cast<size_t>(j)];
      if (p.a_scale != nullptr) x *= static_cast<double>(*p.a_scale) * *p.b_scale;
      if (p.bias != nullptr) x += read(p.bias, p.of_bias, j);
      if (p.accumulate) x += read(p.c, p.of_c, at);
      if (p.pre_activation != nullptr) write(p.pre_activation, p.of_c, at, x), x = gelu(x);
      if (p.gelu_input != nullptr) x *= gelu_slope(read(p.gelu_input, p.of_c, at));
      write(p.c, p.of_c, at, x);
    }
    if (p.sums == nullptr) continue;
    double sum = 0;
    for (int64_t k = 0; k < p.k; ++k) sum += read(p.a, p.of_a, k * p.m + i);
    p.sums[i] = static_cast<float>(sum);
  }
}

bool takes(const Product& p) {
  const auto in_16 = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (p.bias != nullptr && p.of_bias != (p.a_scale != nullptr ? Dtype::bf16 : p.of_c)) return false;
  if (p.a_scale != nullptr && (p.pre_activation != nullptr || p.gelu_input != nullptr)) return false;
  if (p.a_scale != nullptr && !((p.m | p.n | p.k) % 16 == 0 && in_16(p.a) && in_16(p.b) && in_16(p.c))) return false;
  return p.n % 2 == 0 || (p.pre_activation == nullptr && p.gelu_input == nullptr && p.sums == nullptr);
}

using Key = std::array<int64_t, 5>;
Key key_of(const Product& p) {
  const int fusion = p.pre_activation != nullptr ? 1 : p.gelu_input != nullptr ? 2 : p.sums != nullptr ? 3 : 0;
  return {p.m, p.n, p.k, 2 * static_cast<int64_t>(p.transpose_a) + static_cast<int64_t>(p.transpose_b), fusion};
}
// Shapes for which kApart is preferred.
std::set<Key>& apart() {
  static std::set<Key> shapes;
  return shapes;
}

}  // namespace

bool multiply(const Cuda& cuda, const Product& product) {
  if (!takes(product) || apart().contains(key_of(product))) return false;
  scratch(cuda, kProductWorkspace);
  ok(emulation::in_stream(stream_of(cuda), [product] { compute(product); }));
  return true;
}

std::vector<std::string> algorithms(const Product& product, int most) {
  std::vector<std::string> known;
  if (takes(product)) known = {"one", "two"};
  known.resize(std::min(known.size(), static_cast<size_t>(most)));
  return known;
}

bool prefer(const Product& product, const std::string& algorithm) {
  if (algorithm == kApart) return product.fused() && (apart().insert(key_of(product)), true);
  const bool known = takes(product) && (algorithm == "one" || algorithm == "two");
  if (known) apart().erase(key_of(product));
  return known;
}

std::string product_library() { return "emulated products 1"; }

}  // namespace trireme
