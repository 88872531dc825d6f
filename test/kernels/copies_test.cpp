// Ops on what copies of a state exchange: the outer step, and matrices as products of two narrow ones.
#include <cmath>

#include "kernels/device.h"
#include "kernels/ops/low_rank.h"
#include "kernels/ops/outer_step.h"
#include "test/catch.h"
#include "test/reference/compare.h"

using namespace trireme;

TEST_CASE("an outer step is Nesterov's, in double") {
  Device device(tested_place());
  constexpr double kLr = 0.7, kMomentum = 0.9;
  for (const int64_t n : {1, 7, 1000, 20001}) {
    CAPTURE(n);
    HostTensor outer = random_tensor(Dtype::f32, {n}, 1), u = random_tensor(Dtype::f32, {n}, 2, 0.1), delta(Dtype::f32, {n});
    HostTensor master = random_tensor(Dtype::f32, {n}, 3);
    Doubles theta = outer.values(), velocity = u.values(), wanted_delta;
    for (int64_t i = 0; i < n; ++i) wanted_delta.push_back(outer[i] - master[i]);
    run(device.compute(), OuterGradient{.delta = delta, .outer = outer, .master = master});
    settle();
    CHECK(close(delta, wanted_delta, 1e-6));
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const double g = delta[i] / 4;
      velocity[at] = kMomentum * velocity[at] + g;
      theta[at] -= kLr * (g + kMomentum * velocity[at]);
    }
    run(device.compute(), OuterStep{.outer = outer,
                                    .u = u,
                                    .master = master,
                                    .delta = delta,
                                    .scale = 0.25f,
                                    .lr = static_cast<float>(kLr),
                                    .momentum = static_cast<float>(kMomentum)});
    settle();
    CHECK(close(outer, theta, 1e-6));
    CHECK(close(u, velocity, 1e-6));
    CHECK((master == outer));
    CHECK(delta.values() == Doubles(static_cast<size_t>(n)));
  }
}

TEST_CASE("columns become orthonormal and span what they spanned") {
  Device device(tested_place());
  for (const auto& [m, r] : {std::pair(1, 1), {5, 2}, {64, 4}, {700, 8}, {40, 40}}) {
    CAPTURE(m, r);
    const HostTensor before = random_tensor(Dtype::f32, {m, r}, 4, 1e-3);
    HostTensor x = before;
    run(device.compute(), Orthonormalize{.x = x});
    settle();
    const auto at = [&](const HostTensor& t, int64_t i, int64_t c) { return t[i * r + c]; };
    for (int64_t a = 0; a < r; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        double product = 0;
        for (int64_t i = 0; i < m; ++i) product += at(x, i, a) * at(x, i, b);
        REQUIRE(std::abs(product - (a == b ? 1 : 0)) < 1e-4);
      }
    // Column c is a sum of the first c + 1 basis vectors.
    for (int64_t c = 0; c < r; ++c) {
      double squares = 0, kept = 0;
      for (int64_t i = 0; i < m; ++i) squares += at(before, i, c) * at(before, i, c);
      for (int64_t b = 0; b <= c; ++b) {
        double product = 0;
        for (int64_t i = 0; i < m; ++i) product += at(x, i, b) * at(before, i, c);
        kept += product * product;
      }
      REQUIRE(std::abs(kept / squares - 1) < 1e-4);
    }
  }
}

TEST_CASE("columns of zeros, and equal ones, are replaced in a basis") {
  Device device(tested_place());
  for (const bool equal : {false, true}) {
    HostTensor x(Dtype::f32, {30, 3});
    for (int64_t i = 0; equal && i < 90; ++i) x.set(i, static_cast<double>(i / 3 % 7) - 2.5);
    run(device.compute(), Orthonormalize{.x = x});
    settle();
    for (int64_t a = 0; a < 3; ++a)
      for (int64_t b = 0; b < 3; ++b) {
        double product = 0;
        for (int64_t i = 0; i < 30; ++i) product += x[i * 3 + a] * x[i * 3 + b];
        CHECK(std::abs(product - (a == b ? 1 : 0)) < 1e-5);
      }
  }
}

TEST_CASE("the product of two narrow matrices, and what it leaves out, are those of double arithmetic") {
  Device device(tested_place());
  for (const auto& [m, k, r] : {std::tuple(1, 1, 1), {7, 5, 2}, {33, 100, 4}, {300, 130, 8}}) {
    CAPTURE(m, k, r);
    const HostTensor p = random_tensor(Dtype::f32, {m, r}, 5), q = random_tensor(Dtype::f32, {k, r}, 6),
                     x = random_tensor(Dtype::f32, {m, k}, 7);
    HostTensor y(Dtype::f32, {m, k}), next(Dtype::bf16, {m, k});
    run(device.compute(), LowRank{.y = y, .p = p, .q = q});
    run(device.compute(), LowRankRest{.next = next, .x = x, .p = p, .q = q});
    settle();
    Doubles product, rest;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = 0; c < k; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < r; ++j) sum += p[i * r + j] * q[c * r + j];
        product.push_back(sum), rest.push_back(x[i * k + c] - sum);
      }
    CHECK(close(y, product, 1e-5));
    CHECK(close(next, rest, rounding(Dtype::bf16) + 1e-5));
  }
}
