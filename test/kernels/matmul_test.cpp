#include "kernels/ops/matmul.h"

#include <cmath>
#include <thread>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/kernels/product_operands.h"
#include "test/reference/compare.h"
#include "test/reference/gelu.h"

using namespace trireme;

namespace {

const std::vector<reference::Product> kMatmulShapes{{1, 1, 1},     {1, 257, 63},   {2, 66, 96},   {3, 17, 100},
                                                    {4, 129, 40},  {11, 66, 96},   {13, 129, 40}, {17, 3, 1},
                                                    {63, 100, 17}, {100, 63, 257}, {257, 129, 3}};

// A device that either uses bf16 instructions or is treated as one without them. Without AVX-512,
// oneDNN has no bf16 products at all.
struct OwnLane {
  Device device;
  Stream& stream = device.compute();
  explicit OwnLane(bool bf16_products) : device(tested_place(), {.avx512_bf16 = bf16_products && read_cpu_facts().avx512}) {}
};

// A GPU's library may add a bf16 bias to bf16 results, which rounds twice, if rows do not begin at multiples of 16 bytes.
double bound_with_bias(const reference::Product& s, Dtype out) {
  const bool twice = tested_place() == Place::cuda && out == Dtype::bf16 && (s.n % 8 != 0 || s.k % 8 != 0);
  return bound(s, out) + (twice ? rounding(out) : 0);
}

}  // namespace

TEST_CASE("a product matches its double reference in every layout, dtype and way of multiplying") {
  const bool bf16_products = GENERATE(true, false), transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  OwnLane lane(bf16_products);
  for (reference::Product s : kMatmulShapes) {
    s.transpose_a = transpose_a, s.transpose_b = transpose_b;
    for (const auto& [in, out] : {std::pair{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::f32}}) {
      INFO(s.m << " " << s.n << " " << s.k << " " << name_of(in) << " " << name_of(out));
      const ProductOperands o(s, in);
      HostTensor c = random_tensor(out, {s.m, s.n}, 4), again(out, {s.m, s.n});
      const Doubles before = c.values(), wanted = o.wanted();
      run(lane.stream, o.product(c));
      REQUIRE(close(c, wanted, bound(s, out)));
      run(lane.stream, o.product(again));
      REQUIRE(c == again);

      Matmul biased = o.product(c);
      biased.bias = o.bias;
      run(lane.stream, biased);
      REQUIRE(error_of(c, o.wanted_with_bias(out)) <= bound_with_bias(s, out));
    }
  }
}

TEST_CASE("an accumulating product adds to what c holds") {
  const bool bf16_products = GENERATE(true, false), transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  OwnLane lane(bf16_products);
  for (reference::Product s : kMatmulShapes) {
    s.transpose_a = transpose_a, s.transpose_b = transpose_b;
    for (const auto& [in, out] : {std::pair{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::f32}, {Dtype::bf16, Dtype::bf16}}) {
      INFO(s.m << " " << s.n << " " << s.k << " " << name_of(in) << " " << name_of(out));
      const ProductOperands o(s, in);
      HostTensor c = random_tensor(out, {s.m, s.n}, 5);
      Doubles wanted = o.wanted();
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += c[static_cast<int64_t>(i)];
      Matmul op = o.product(c);
      op.accumulate = true;
      run(lane.stream, op);
      REQUIRE(close(c, wanted, bound(s, out)));
    }
  }
}

TEST_CASE("a product takes gelu along, its gradient, or the sums of its operand's rows") {
  const auto& [in, out] = GENERATE(table<Dtype, Dtype>({{Dtype::f32, Dtype::f32}, {Dtype::bf16, Dtype::bf16}}));
  OwnLane lane(true);
  std::vector<reference::Product> shapes = kMatmulShapes;
  shapes.insert(shapes.end(), {{16, 24, 40}, {100, 64, 63}});  // the emulated library fuses ops if n is even
  for (reference::Product s : shapes) {
    INFO(s.m << " " << s.n << " " << s.k << " " << name_of(in));
    const double close_enough = bound(s, out) + rounding(out);
    s.transpose_b = true;
    {
      const ProductOperands o(s, in);
      HostTensor c(out, {s.m, s.n}), hidden(out, {s.m, s.n});
      Matmul op = o.product(c);
      op.bias = o.bias, op.pre_activation = hidden;
      run(lane.stream, op);
      CHECK(error_of(hidden, o.wanted_with_bias(out)) <= bound_with_bias(s, out));
      CHECK(error_of(c, reference::gelu(o.wanted_with_bias(out))) <= 2 * close_enough);
    }
    s.transpose_b = false;
    {
      const ProductOperands o(s, in);
      const HostTensor x = random_tensor(out, {s.m, s.n}, 9);
      HostTensor c(out, {s.m, s.n});
      Matmul op = o.product(c);
      op.gelu_input = x;
      const Doubles wanted = reference::gelu_backward(o.wanted(), x.values());
      run(lane.stream, op);
      CHECK(error_of(c, wanted) <= 2 * close_enough);
      op.gelu_input = c;
      CHECK_THROWS_WITH(run(lane.stream, op), ContainsSubstring("a product writes over its gelu_input"));
    }
    s.transpose_a = true;
    {
      const ProductOperands o(s, in);
      HostTensor c = random_tensor(Dtype::f32, {s.m, s.n}, 5), sums = random_tensor(Dtype::f32, {s.m}, 6);
      Doubles wanted = o.wanted(), rows = sums.values();
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += c[static_cast<int64_t>(i)];
      for (int64_t k = 0; k < s.k; ++k)
        for (int64_t i = 0; i < s.m; ++i) rows[static_cast<size_t>(i)] += o.a[k * s.m + i];
      Matmul op = o.product(c);
      op.sums = sums, op.accumulate = true;
      run(lane.stream, op);
      CHECK(close(c, wanted, bound(s, Dtype::f32)));
      CHECK(close(sums, rows, bound(s, Dtype::f32)));
    }
  }
}

TEST_CASE("an 8-bit product matches its double reference, scaled, with its fused epilogues") {
  OwnLane lane(GENERATE(true, false));
  if (!multiplies_8_bits()) {
    WARN("products of 8 bits: not on this GPU");
    return;
  }
  // Tensor cores accumulate 8-bit products in about 13 binary digits; the emulation does not.
  const double digits = tested_place() == Place::cuda ? 0x1p-10 : 0;
  std::vector<reference::Product> shapes{{16, 32, 48}, {64, 16, 128}};
  if (tested_place() == Place::cpu) shapes.insert(shapes.end(), {{3, 17, 100}, {63, 5, 1}});  // a GPU's library needs dims of 16
  for (reference::Product s : shapes) {
    s.transpose_b = true;
    for (const auto& [of_a, of_b] : {std::pair(Dtype::e4m3, Dtype::e4m3), {Dtype::e5m2, Dtype::e4m3}, {Dtype::e4m3, Dtype::e5m2}})
      for (const Dtype out : {Dtype::bf16, Dtype::f32}) {
        INFO(s.m << " " << s.n << " " << s.k << " " << name_of(of_a) << " " << name_of(of_b) << " " << name_of(out));
        const HostTensor a = random_tensor(of_a, {s.m, s.k}, 1), b = random_tensor(of_b, {s.n, s.k}, 2);
        const HostTensor bias = random_tensor(Dtype::f32, {s.n}, 3), x = random_tensor(out, {s.m, s.n}, 4);
        const HostTensor a_scale(Dtype::f32, {1}, {0.25}), b_scale(Dtype::f32, {1}, {0.75 / std::sqrt(s.k)});
        Doubles sums = reference::matmul(s, a.values(), b.values());
        for (double& sum : sums) sum *= a_scale[0] * b_scale[0];
        HostTensor c(out, {s.m, s.n});
        const Matmul op{.c = c, .a = a, .b = b, .a_scale = a_scale, .b_scale = b_scale, .transpose_b = true};
        run(lane.stream, op);
        CHECK(close(c, sums, bound(s, out) + digits));

        Matmul along = op;
        along.gelu_input = x;
        run(lane.stream, along);
        CHECK(close(c, reference::gelu_backward(sums, x.values()), 2 * bound(s, out) + 2 * rounding(out) + 2 * digits));

        Doubles more = sums;
        for (size_t i = 0; i < more.size(); ++i) more[i] += x[static_cast<int64_t>(i)];
        c = x;
        Matmul onto = op;
        onto.accumulate = true;
        run(lane.stream, onto);
        CHECK(close(c, more, bound(s, out) + digits));

        const HostTensor added = added_bias(bias, Dtype::bf16);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += added[static_cast<int64_t>(i) % s.n];
        HostTensor hidden(out, {s.m, s.n});
        Matmul biased = op;
        biased.bias = bias, biased.pre_activation = hidden;
        run(lane.stream, biased);
        CHECK(close(hidden, sums, bound(s, out) + digits));
        CHECK(close(c, reference::gelu(sums), 2 * bound(s, out) + 2 * rounding(out) + 2 * digits));
      }
  }
}

TEST_CASE("the three products of a linear layer are the gradients of one another") {
  const int64_t rows = 4, in = 5, out = 3;
  const Doubles x = random_doubles(rows * in, 1), w = random_doubles(out * in, 2), dy = random_doubles(rows * out, 3);
  const reference::Product forward{rows, out, in, false, true};
  const auto loss_x = [&](const Doubles& at) { return dot(reference::matmul(forward, at, w), dy); };
  const auto loss_w = [&](const Doubles& at) { return dot(reference::matmul(forward, x, at), dy); };
  CHECK(close(reference::matmul({rows, in, out}, dy, w), finite_differences(loss_x, x), 1e-8));
  CHECK(close(reference::matmul({out, in, rows, true, false}, dy, x), finite_differences(loss_w, w), 1e-8));
}

TEST_CASE("a product leaves the rows around its slice alone") {
  OwnLane lane(true);
  const ProductOperands o({5, 7, 9}, Dtype::bf16);
  HostTensor c = random_tensor(Dtype::bf16, {9, 7}, 6);
  const HostTensor before = c;
  Matmul op = o.product(c);
  op.c = c.tensor().slice(2, 7);
  run(lane.stream, op);
  for (int64_t i = 0; i < 63; ++i) REQUIRE((i / 7 >= 2 && i / 7 < 7 ? i >= 0 : c[i] == before[i]));
  Doubles middle = c.values();
  CHECK(close(Doubles(middle.begin() + 14, middle.begin() + 49), o.wanted(), bound(o.shape, Dtype::bf16)));
}

TEST_CASE("a repeated product allocates nothing and may follow a frozen ledger") {
  const bool bf16_products = GENERATE(true, false);
  OwnLane lane(bf16_products);
  const ProductOperands o({64, 96, 128, true, false}, Dtype::bf16);
  HostTensor c(Dtype::f32, {64, 96});
  run(lane.stream, o.product(c));
  lane.device.freeze();
  CHECK_NOTHROW(run(lane.stream, o.product(c)));
}

TEST_CASE("a product follows a change of the number of threads") {
  OwnLane lane(true);
  const ProductOperands o({100, 64, 63, false, true}, Dtype::bf16);
  for (const int count : {1, 3, 2}) {
    const Threads threads(count);
    HostTensor c(Dtype::bf16, {100, 64});
    run(lane.stream, o.product(c));
    CHECK(close(c, o.wanted(), bound(o.shape, Dtype::bf16)));
  }
}

TEST_CASE("lanes of several threads may multiply at once") {
  const ProductOperands o({33, 65, 31, false, true}, Dtype::bf16);
  const Doubles wanted = o.wanted();
  std::vector<double> errors(4);
  std::vector<std::thread> threads;
  for (double& error : errors)
    threads.emplace_back([&] {
      const Threads one(1);
      OwnLane lane(true);
      HostTensor c(Dtype::f32, {33, 65});
      for (int i = 0; i < 20; ++i) run(lane.stream, o.product(c));
      error = error_of(c, wanted);
    });
  for (std::thread& t : threads) t.join();
  for (const double error : errors) CHECK(error < bound(o.shape, Dtype::f32));
}

TEST_CASE("a product without elements does nothing, a sum over nothing adds nothing") {
  OwnLane lane(true);
  HostTensor a(Dtype::f32, {0, 4}), b(Dtype::f32, {4, 3}), empty(Dtype::f32, {0, 3}), c = random_tensor(Dtype::f32, {4, 3}, 7);
  const HostTensor before = c;
  CHECK_NOTHROW(run(lane.stream, Matmul{.c = empty, .a = a, .b = b}));
  run(lane.stream, Matmul{.c = c, .a = a, .b = empty, .transpose_a = true, .accumulate = true});
  CHECK(c == before);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = empty, .transpose_a = true}), Error);
}

TEST_CASE("a product refuses shapes and dtypes that do not fit") {
  OwnLane lane(true);
  HostTensor a(Dtype::f32, {3, 4}), b(Dtype::f32, {4, 5}), c(Dtype::f32, {3, 5}), half(Dtype::bf16, {4, 5}), bias(Dtype::f32, {4}),
      half_bias(Dtype::bf16, {5});
  HostTensor half_c(Dtype::bf16, {3, 5}), i(Dtype::i32, {3, 4}), flat(Dtype::f32, {12});
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = b, .transpose_b = true}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = b, .transpose_a = true}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = half}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = half_c, .a = a, .b = b}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = a, .a = a, .b = b}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = i, .b = b}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = flat, .b = b}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = b, .bias = bias}), Error);
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = a, .b = b, .bias = half_bias}), Error);
}

TEST_CASE("an 8-bit product refuses what no library does") {
  if (!multiplies_8_bits()) {
    WARN("products of 8 bits: not on this GPU");
    return;
  }
  OwnLane lane(true);
  HostTensor a(Dtype::e4m3, {16, 16}), b(Dtype::e5m2, {16, 16}), c(Dtype::bf16, {16, 16}), one(Dtype::f32, {1});
  const Matmul fits{.c = c, .a = a, .b = b, .a_scale = one, .b_scale = one, .transpose_b = true};
  CHECK_NOTHROW(run(lane.stream, fits));
  const auto refused = [&](const auto& change) {
    Matmul op = fits;
    change(op);
    CHECK_THROWS_AS(run(lane.stream, op), Error);
  };
  refused([&](Matmul& op) { op.a = b; });
  refused([&](Matmul& op) { op.a = c; });
  refused([&](Matmul& op) { op.b = c; });
  refused([&](Matmul& op) { op.c = a; });
  refused([&](Matmul& op) { op.a_scale = {}; });
  refused([&](Matmul& op) { op.b_scale = {}; });
  refused([&](Matmul& op) { op.transpose_b = false; });
  refused([&](Matmul& op) { op.transpose_a = true; });
  HostTensor wide(Dtype::bf16, {16, 16});
  CHECK_THROWS_AS(run(lane.stream, Matmul{.c = c, .a = wide, .b = wide, .a_scale = one}), Error);
}

TEST_CASE("a product on place none counts its multiplications and bytes") {
  Device none(Place::none);
  const Tensor a = imagined(Dtype::bf16, {30, 20}), b = imagined(Dtype::bf16, {10, 20}), c = imagined(Dtype::f32, {30, 10});
  run(none.compute(), Matmul{.c = c, .a = a, .b = b, .transpose_b = true});
  run(none.compute(), Matmul{.c = c, .a = a, .b = b, .transpose_b = true, .accumulate = true});
  const OpCount& count = none.tally().at("matmul");
  CHECK(count.calls == 2);
  CHECK(count.flops == 2 * 2.0 * 30 * 20 * 10);
  CHECK(count.bytes == 2 * (1200 + 400) + 1200 + 2400);
}

TEST_CASE("on a CPU each of a few rows times a weight has the bits that it has alone") {
  if (tested_place() != Place::cpu) return;
  Device device(Place::cpu);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int64_t k : {1, 15, 31, 32, 100, 333})
      for (const int64_t m : {int64_t{2}, kFewRows - 3, kFewRows}) {
        CAPTURE(dtype, k, m);
        constexpr int64_t kOut = 70;
        const HostTensor x = random_tensor(dtype, {m, k}, 1), w = random_tensor(dtype, {kOut, k}, 2);
        const HostTensor all(Dtype::f32, {m, kOut}), one(Dtype::f32, {1, kOut});
        run(device.compute(), Matmul{.c = all, .a = x, .b = w, .transpose_b = true});
        for (int64_t row = 0; row < m; ++row) {
          run(device.compute(), Matmul{.c = one, .a = x.tensor().slice(row, row + 1), .b = w, .transpose_b = true});
          for (int64_t i = 0; i < kOut; ++i) REQUIRE(one[i] == all[row * kOut + i]);
        }
      }
}
