#include "kernels/ops/adamw.h"

#include <cmath>
#include <limits>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/adamw.h"
#include "test/reference/fill.h"

using namespace trireme;

namespace {

const std::vector<int64_t> kSizes{1, 3, 17, 63, 100, 257, 8193, 40001};

// What the optimizer holds for one tensor, and a step on it.
struct State {
  HostTensor weight, master, m, v, grad, squared_norm;
  explicit State(int64_t n)
      : weight(random_tensor(Dtype::bf16, {n}, 1)),
        master(random_tensor(Dtype::f32, {n}, 2)),
        m(Dtype::f32, {n}),
        v(Dtype::f32, {n}),
        grad(random_tensor(Dtype::f32, {n}, 3)),
        squared_norm(Dtype::f32, {1}) {}

  AdamW step(int64_t t, float clip = 1) const {
    return {.weight = weight,
            .master = master,
            .m = m,
            .v = v,
            .grad = grad,
            .squared_norm = squared_norm,
            .lr = 1e-2f,
            .beta1 = 0.9f,
            .beta2 = 0.95f,
            .eps = 1e-8f,
            .decay = 0.1f,
            .clip = clip,
            .step = t};
  }
};

}  // namespace

TEST_CASE("ten steps of adamw match the double reference, with and without clipping") {
  Device device(tested_place());
  const float clip = GENERATE(0.0f, 0.5f, 1e6f);
  for (const int64_t n : kSizes) {
    State s(n);
    reference::Moments wanted{s.master.values(), s.m.values(), s.v.values()};
    for (int64_t t = 1; t <= 10; ++t) {
      s.grad = random_tensor(Dtype::f32, {n}, static_cast<uint64_t>(100 + t), 0.3);
      s.squared_norm = HostTensor(Dtype::f32, {1});
      const Doubles grad = s.grad.values();
      run(device.compute(), SquaredNorm{.total = s.squared_norm, .x = s.grad});
      REQUIRE(s.squared_norm[0] == Approx(reference::squared_norm(grad)).epsilon(1e-6));
      reference::adamw(wanted, grad, s.squared_norm[0], s.step(t, clip));
      run(device.compute(), s.step(t, clip));
      REQUIRE(s.grad.values() == Doubles(static_cast<size_t>(n)));
    }
    REQUIRE(close(s.m, wanted.m, 2e-6));
    REQUIRE(close(s.v, wanted.v, 2e-6));
    REQUIRE(close(s.master, wanted.master, 2e-6));
    REQUIRE(s.weight == HostTensor(Dtype::bf16, {n}, s.master.values()));
  }
}

TEST_CASE("adamw without a weight leaves the same master, and any number of threads the same bits") {
  Device device(tested_place());
  for (const int64_t n : kSizes) {
    State with(n);
    with.squared_norm.set(0, 7);
    State without = with, threaded = with;
    AdamW bare = without.step(3);
    bare.weight = {};
    {
      const Threads threads(1);
      run(device.compute(), with.step(3));
    }
    run(device.compute(), bare);
    const Threads threads(3);
    run(device.compute(), threaded.step(3));
    REQUIRE((with.master == without.master && with.m == without.m && with.v == without.v));
    REQUIRE((with.master == threaded.master && with.m == threaded.m && with.v == threaded.v && with.weight == threaded.weight));
  }
}

TEST_CASE("a gradient norm that is not finite changes nothing but the gradient, which becomes zero") {
  Device device(tested_place());
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    State s(100);
    s.grad.set(17, bad);
    run(device.compute(), SquaredNorm{.total = s.squared_norm, .x = s.grad});
    CHECK_FALSE(std::isfinite(s.squared_norm[0]));
    const State before = s;
    run(device.compute(), s.step(1));
    CHECK((s.master == before.master && s.m == before.m && s.v == before.v && s.weight == before.weight));
    CHECK(s.grad.values() == Doubles(100));
  }
}

TEST_CASE("a gradient of zero only decays the weight") {
  Device device(tested_place());
  State s(5);
  s.grad = HostTensor(Dtype::f32, {5});
  const Doubles before = s.master.values();
  run(device.compute(), s.step(1));
  for (int64_t i = 0; i < 5; ++i) CHECK(s.master[i] == Approx(before[static_cast<size_t>(i)] * (1 - 1e-3)).epsilon(1e-6));
}

TEST_CASE("the squared norm adds to its total, to the last bit the same with any number of threads") {
  Device device(tested_place());
  for (const int64_t n : kSizes) {
    const HostTensor x = random_tensor(Dtype::f32, {n}, 4);
    std::vector<HostTensor> totals(3, HostTensor(Dtype::f32, {1}, {2.0}));
    for (const int count : {1, 2, 3}) {
      const Threads threads(count);
      run(device.compute(), SquaredNorm{.total = totals[static_cast<size_t>(count - 1)], .x = x});
    }
    CHECK(totals[0][0] == Approx(2 + reference::squared_norm(x.values())).epsilon(1e-7));
    CHECK((totals[0] == totals[1] && totals[0] == totals[2]));
  }
}

TEST_CASE("adamw refuses shapes that do not fit, and a step that is not counted from one") {
  Device device(tested_place());
  State s(6);
  CHECK_THROWS_WITH(run(device.compute(), s.step(0)), ContainsSubstring("step 0"));
  AdamW op = s.step(1);
  HostTensor short_one(Dtype::f32, {5});
  for (Tensor AdamW::*field : {&AdamW::master, &AdamW::m, &AdamW::v, &AdamW::grad, &AdamW::weight}) {
    AdamW bad = op;
    bad.*field = short_one;
    CHECK_THROWS_AS(run(device.compute(), bad), Error);
  }
  CHECK_THROWS_AS(run(device.compute(), SquaredNorm{.total = s.squared_norm, .x = s.weight}), Error);
  CHECK_THROWS_AS(run(device.compute(), SquaredNorm{.total = s.grad, .x = s.grad}), Error);
}

TEST_CASE("adamw on place none counts 34 bytes an element and touches nothing") {
  Device none(Place::none);
  const Tensor f = imagined(Dtype::f32, {100}), one = imagined(Dtype::f32, {1});
  AdamW op = State(100).step(1);
  op.weight = imagined(Dtype::bf16, {100}), op.master = op.m = op.v = op.grad = f, op.squared_norm = one;
  run(none.compute(), op);
  run(none.compute(), SquaredNorm{.total = one, .x = f});
  CHECK(none.tally().at("adamw").bytes == 3400 + 4);
  CHECK(none.tally().at("squared_norm").bytes == 400 + 8);
}
