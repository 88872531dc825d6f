#include "kernels/ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/device.h"
#include "kernels/ops/gradient_norm.h"
#include "kernels/ops/round_weights.h"
#include "kernels/ops/update_gate.h"
#include "test/catch.h"
#include "test/reference/adamw.h"
#include "test/reference/fill.h"

using namespace trireme;

namespace {

const std::vector<int64_t> kSizes{1, 3, 17, 63, 100, 257, 8193, 40001};

// Floats whose bits the op receives unchanged.
constexpr reference::AdamWOptions kOptions{
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .clip = 1, .step = 1};

// The optimizer's state of one tensor.
struct State {
  HostTensor weight, master, m, v, grad;
  explicit State(int64_t n, uint64_t key = 1)
      : weight(random_tensor(Dtype::bf16, {n}, 4 * key)),
        master(random_tensor(Dtype::f32, {n}, 4 * key + 1)),
        m(Dtype::f32, {n}),
        v(Dtype::f32, {n}),
        grad(random_tensor(Dtype::f32, {n}, 4 * key + 2)) {}

  AdamWPart part(float decay = 0.1f) const {
    return {.weight = weight, .master = master, .m = m, .v = v, .grad = grad, .decay = decay};
  }
  bool operator==(const State& other) const = default;
};

// Lists of tensors and their tables.
struct Lists {
  std::vector<AdamWPart> parts;
  std::vector<Tensor> grads;
  HostTensor table, norm_table, schedule{Dtype::f32, {AdamWSchedule::kSize}}, squared_norm{Dtype::f32, {SquaredSum::kSize}};
  HostTensor numbers{Dtype::f32, {StepNumbers::kSize}}, gate{Dtype::f32, {Gate::kSize}};

  Lists(Device& device, std::vector<AdamWPart> list)
      : parts(std::move(list)),
        table(Dtype::i32, {static_cast<int64_t>(parts.size()), AdamW::kRow}),
        norm_table(Dtype::i32, {static_cast<int64_t>(parts.size()), SquaredNorm::kRow}) {
    for (const AdamWPart& part : parts) grads.push_back(part.grad);
    run(device.compute(), AdamWTable{.table = table, .parts = parts});
    run(device.compute(), SquaredNormTable{.table = norm_table, .xs = grads});
  }
  void norm(Device& device) { run(device.compute(), SquaredNorm{.total = squared_norm, .xs = grads, .table = norm_table}); }
  Rounding rounding = Rounding::nearest;
  AdamW op(const reference::AdamWOptions& o = kOptions) const {
    return {.parts = parts,
            .table = table,
            .gate = gate,
            .schedule = schedule,
            .beta1 = static_cast<float>(o.beta1),
            .beta2 = static_cast<float>(o.beta2),
            .eps = static_cast<float>(o.eps),
            .rounding = rounding};
  }
  AdamWSchedule scheduled(const reference::AdamWOptions& o = kOptions) const {
    return {.schedule = schedule,
            .lr = static_cast<float>(o.lr),
            .beta1 = static_cast<float>(o.beta1),
            .beta2 = static_cast<float>(o.beta2),
            .step = o.step};
  }
  void step(Device& device, const reference::AdamWOptions& o = kOptions, const StepLimits& limits = {}, const Tensor& loss = {}) {
    run(device.compute(), StepNumbers{.numbers = numbers, .step = o.step, .limits = limits});
    run(device.compute(), scheduled(o));
    run(device.compute(),
        UpdateGate{
            .gate = gate, .numbers = numbers, .squared_norm = squared_norm, .loss = loss, .clip = static_cast<float>(o.clip)});
    run(device.compute(), op(o));
  }
};

}  // namespace

TEST_CASE("ten steps of adamw match the double reference, with and without clipping") {
  Device device(tested_place());
  reference::AdamWOptions options = kOptions;
  options.clip = GENERATE(0.0f, 0.5f, 1e6f);
  for (const int64_t n : kSizes) {
    State s(n);
    Lists lists(device, {s.part()});
    reference::Moments wanted{s.master.values(), s.m.values(), s.v.values()};
    for (options.step = 1; options.step <= 10; ++options.step) {
      const HostTensor grad = random_tensor(Dtype::f32, {n}, static_cast<uint64_t>(100 + options.step), 0.3);
      for (int64_t i = 0; i < n; ++i) s.grad.set(i, grad[i]);
      lists.norm(device);
      REQUIRE(lists.squared_norm[0] == Approx(reference::squared_norm(grad.values())).epsilon(1e-6));
      reference::adamw(wanted, grad.values(), lists.squared_norm[0], options);
      lists.step(device, options);
      REQUIRE(s.grad.values() == Doubles(static_cast<size_t>(n)));
    }
    REQUIRE(close(s.m, wanted.m, 2e-6));
    REQUIRE(close(s.v, wanted.v, 2e-6));
    REQUIRE(close(s.master, wanted.master, 2e-6));
    REQUIRE(s.weight == HostTensor(Dtype::bf16, {n}, s.master.values()));
  }
}

TEST_CASE("a gradient that is not to be cleared stays as it is, with and without an update") {
  if (tested_place() != Place::cpu) return;
  Device device(Place::cpu);
  for (const float gradient : {1.0f, std::numeric_limits<float>::infinity()}) {
    State kept(100), cleared(100);
    kept.grad.set(3, gradient), cleared.grad.set(3, gradient);
    const HostTensor before = kept.grad;
    AdamWPart part = kept.part();
    part.clears = false;
    for (const AdamWPart& one : {part, cleared.part()}) {
      Lists lists(device, {one});
      lists.norm(device);
      lists.step(device, kOptions);
    }
    CHECK(kept.grad == before);
    CHECK(cleared.grad == HostTensor(Dtype::f32, {100}));
    CHECK((kept.master == cleared.master && kept.m == cleared.m && kept.v == cleared.v && kept.weight == cleared.weight));
  }
}

TEST_CASE("tensors updated together have the bits of each alone, and their norm is that of all") {
  Device device(tested_place());
  std::vector<State> together, alone;
  for (const int64_t n : kSizes) together.emplace_back(n, static_cast<uint64_t>(n));
  alone = together;
  std::vector<AdamWPart> parts;
  for (const State& s : together) parts.push_back(s.part(parts.size() % 2 == 0 ? 0.1f : 0.0f));
  // Two halves of one tensor; the second does not begin at a multiple of a vector, and its weight
  // is the master.
  parts.back() = {.weight = {},
                  .master = together.back().master.tensor().slice(0, 8191),
                  .m = together.back().m.tensor().slice(0, 8191),
                  .v = together.back().v.tensor().slice(0, 8191),
                  .grad = together.back().grad.tensor().slice(0, 8191),
                  .decay = 0.1f};
  AdamWPart second = parts.back();
  for (Tensor AdamWPart::*field : {&AdamWPart::master, &AdamWPart::m, &AdamWPart::v, &AdamWPart::grad}) {
    const State& s = together.back();
    const Tensor all = field == &AdamWPart::master ? s.master
                       : field == &AdamWPart::m    ? s.m
                       : field == &AdamWPart::v    ? s.v
                                                   : s.grad;
    second.*field = all.slice(8191, all.size());
  }
  parts.push_back(second);
  Lists lists(device, parts);
  lists.norm(device);
  double squares = 0;
  for (const State& s : together) squares += reference::squared_norm(s.grad.values());
  CHECK(lists.squared_norm[0] == Approx(squares).epsilon(1e-6));
  lists.step(device);
  for (size_t i = 0; i < alone.size(); ++i) {
    const bool last = i + 1 == alone.size();
    AdamWPart part = alone[i].part(i % 2 == 0 || last ? 0.1f : 0.0f);
    if (last) part.weight = {};
    Lists one(device, {part});
    one.squared_norm = lists.squared_norm;
    one.step(device);
    CHECK(alone[i] == together[i]);
  }
}

TEST_CASE("adamw without a weight leaves the same master, and any number of threads the same bits") {
  Device device(tested_place());
  for (const int64_t n : kSizes) {
    State with(n);
    State without = with, threaded = with;
    AdamWPart bare = without.part();
    bare.weight = {};
    const auto step = [&](const AdamWPart& part) {
      Lists lists(device, {part});
      lists.squared_norm.set(0, 7);
      lists.step(device);
    };
    {
      const Threads threads(1);
      step(with.part());
    }
    step(bare);
    const Threads threads(3);
    step(threaded.part());
    REQUIRE((with.master == without.master && with.m == without.m && with.v == without.v));
    REQUIRE(with == threaded);
  }
}

TEST_CASE("stochastically rounded weights follow from masters and step alone, whatever the threads and the cut") {
  Device device(tested_place());
  reference::AdamWOptions options = kOptions;
  options.step = (int64_t{3} << Gate::kStepBits) + 5;
  for (const int64_t n : kSizes) {
    State s(n);
    const WholeTensor whole{.key = 9, .first = 2, .origin = 40, .cols = 31, .stride = 50};
    const int64_t cut = n / 3;
    std::vector<AdamWPart> parts;
    for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, n)}) {
      const AdamWPart all = s.part();
      parts.push_back({.weight = all.weight.slice(begin, end),
                       .master = all.master.slice(begin, end),
                       .m = all.m.slice(begin, end),
                       .v = all.v.slice(begin, end),
                       .grad = all.grad.slice(begin, end),
                       .decay = 0,
                       .whole = whole});
    }
    parts[1].whole.first += cut;
    Lists lists(device, parts);
    lists.rounding = Rounding::stochastic;
    const auto expected = [&](int64_t step) {
      Doubles weight;
      RandomBits bits(whole, 0, step);
      for (int64_t i = 0; i < n; ++i)
        weight.push_back(static_cast<float>(rounded_stochastically(static_cast<float>(s.master[i]), bits.next())));
      return weight;
    };
    const Threads threads(n % 2 == 0 ? 1 : 3);
    const Doubles before = s.master.values();
    lists.norm(device);
    lists.step(device, options);
    CHECK(s.weight.values() == expected(options.step));
    CHECK(s.master.values() != before);
    // A norm that is not finite: only draws the same masters again.
    lists.squared_norm.set(0, std::numeric_limits<double>::quiet_NaN());
    options.step += 1;
    lists.step(device, options);
    CHECK(s.weight.values() == expected(options.step));
    std::vector<RoundedPart> rounded;
    for (const AdamWPart& part : parts) rounded.push_back({.weight = part.weight, .master = part.master, .whole = part.whole});
    const HostTensor table(Dtype::i32, {static_cast<int64_t>(rounded.size()), RoundWeights::kRow});
    run(device.compute(), RoundWeightsTable{.table = table, .parts = rounded});
    run(device.compute(), RoundWeights{.parts = rounded, .table = table, .step = 3});
    CHECK(s.weight.values() == expected(3));
  }
}

TEST_CASE("a gradient norm that is not finite changes nothing but the gradient, which becomes zero") {
  Device device(tested_place());
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    State s(100);
    Lists lists(device, {s.part()});
    s.grad.set(17, bad);
    lists.norm(device);
    CHECK_FALSE(std::isfinite(lists.squared_norm[0]));
    const State before = s;
    lists.step(device);
    CHECK((s.master == before.master && s.m == before.m && s.v == before.v && s.weight == before.weight));
    CHECK(s.grad.values() == Doubles(100));
  }
}

TEST_CASE("a step with a norm or loss above its limit, infinite or NaN, updates nothing") {
  Device device(tested_place());
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    float squared_norm, loss;
    StepLimits limits;
    bool updates;
  };
  for (const Case& c :
       {Case{4, 2, {}, true}, Case{4, 2, {.squared_norm = 4, .loss = 2}, true}, Case{4.001f, 2, {.squared_norm = 4}, false},
        Case{4, 2.001f, {.loss = 2}, false}, Case{4, inf, {}, false}, Case{4, nan, {}, false}, Case{inf, 2, {}, false},
        Case{nan, 2, {}, false}, Case{0, 0, {.squared_norm = -1, .loss = -1}, false}}) {
    CAPTURE(c.squared_norm, c.loss, c.limits.squared_norm, c.limits.loss);
    State s(100);
    Lists lists(device, {s.part()});
    HostTensor loss(Dtype::f32, {1});
    loss.set(0, c.loss), lists.squared_norm.set(0, c.squared_norm);
    const State before = s;
    lists.step(device, kOptions, c.limits, loss);
    CHECK((lists.gate[1] != 0) == c.updates);
    CHECK((s.master == before.master && s.m == before.m && s.v == before.v && s.weight == before.weight) == !c.updates);
    CHECK(s.grad.values() == Doubles(100));
    CHECK(c.limits.pass({.plain = c.squared_norm}, c.loss, 0) == c.updates);
  }
}

TEST_CASE("the gate scales gradients to the clip, and keeps a step's number whole") {
  Device device(tested_place());
  State s(4);
  Lists lists(device, {s.part()});
  for (const auto& [squared_norm, clip, scale] :
       {std::tuple(4.0, 1.0, 0.5), std::tuple(4.0, 2.0, 1.0), std::tuple(4.0, 3.0, 1.0), std::tuple(1e8, 0.0, 1.0)}) {
    lists.squared_norm.set(0, squared_norm);
    reference::AdamWOptions options = kOptions;
    options.clip = clip, options.step = (int64_t{5} << Gate::kStepBits) + 77;
    lists.step(device, options);
    std::array<float, Gate::kSize> gate{};
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<float>(lists.gate[static_cast<int64_t>(i)]);
    const Gate read = Gate::read(gate.data());
    CHECK(read.scale == Approx(scale));
    CHECK(read.passes);
    CHECK(read.step == options.step);
  }
}

TEST_CASE("a gradient of zero only decays the weight") {
  Device device(tested_place());
  State s(5);
  for (int64_t i = 0; i < 5; ++i) s.grad.set(i, 0);
  const Doubles before = s.master.values();
  Lists(device, {s.part()}).step(device);
  for (int64_t i = 0; i < 5; ++i) CHECK(s.master[i] == Approx(before[static_cast<size_t>(i)] * (1 - 1e-3)).epsilon(1e-6));
}

TEST_CASE("the squared norm is to the last bit the same with any number of threads") {
  Device device(tested_place());
  for (const int64_t n : kSizes) {
    const State s(n);
    std::vector<HostTensor> totals;
    for (const int count : {1, 2, 3}) {
      const Threads threads(count);
      Lists lists(device, {s.part(), s.part()});
      lists.norm(device);
      totals.push_back(lists.squared_norm);
    }
    CHECK(totals[0][0] == Approx(2 * reference::squared_norm(s.grad.values())).epsilon(1e-7));
    CHECK((totals[0] == totals[1] && totals[0] == totals[2]));
  }
}

TEST_CASE("adamw refuses shapes that do not fit, and a step that is not counted from one") {
  Device device(tested_place());
  State s(6);
  Lists lists(device, {s.part()});
  AdamWSchedule early = lists.scheduled();
  early.step = 0;
  CHECK_THROWS_WITH(run(device.compute(), early), ContainsSubstring("step 0"));
  CHECK_THROWS_WITH(run(device.compute(), StepNumbers{.numbers = lists.numbers, .step = 0}), ContainsSubstring("step 0"));
  CHECK_THROWS_AS(run(device.compute(), StepNumbers{.numbers = lists.schedule, .step = 1}), Error);
  CHECK_THROWS_AS(run(device.compute(),
                      UpdateGate{.gate = lists.schedule, .numbers = lists.numbers, .squared_norm = lists.squared_norm, .clip = 1}),
                  Error);
  HostTensor short_one(Dtype::f32, {5});
  for (Tensor AdamWPart::*field : {&AdamWPart::master, &AdamWPart::m, &AdamWPart::v, &AdamWPart::grad, &AdamWPart::weight}) {
    std::vector<AdamWPart> bad{s.part()};
    bad[0].*field = short_one;
    AdamW op = lists.op();
    op.parts = bad;
    CHECK_THROWS_AS(run(device.compute(), op), Error);
  }
  AdamW op = lists.op();
  op.table = lists.norm_table;
  CHECK_THROWS_AS(run(device.compute(), op), Error);
  const std::vector<Tensor> narrow{s.weight};
  CHECK_THROWS_AS(run(device.compute(), SquaredNorm{.total = lists.squared_norm, .xs = narrow, .table = lists.norm_table}), Error);
  CHECK_THROWS_AS(run(device.compute(), SquaredNorm{.total = s.grad, .xs = lists.grads, .table = lists.norm_table}), Error);
}

TEST_CASE("adamw on place none counts 34 bytes an element and touches nothing") {
  Device none(Place::none);
  const Tensor f = imagined(Dtype::f32, {100}), sum = imagined(Dtype::f32, {SquaredSum::kSize});
  const std::vector<AdamWPart> parts(2,
                                     {.weight = imagined(Dtype::bf16, {100}), .master = f, .m = f, .v = f, .grad = f, .decay = 0});
  const std::vector<Tensor> xs(2, f);
  run(none.compute(), AdamW{.parts = parts,
                            .gate = imagined(Dtype::f32, {Gate::kSize}),
                            .schedule = imagined(Dtype::f32, {AdamWSchedule::kSize}),
                            .beta1 = 0,
                            .beta2 = 0,
                            .eps = 0});
  run(none.compute(), SquaredNorm{.total = sum, .xs = xs});
  CHECK(none.tally().at("adamw").calls == 1);
  CHECK(none.tally().at("adamw").bytes == 2 * 3400 + 4 * Gate::kSize + 4 * AdamWSchedule::kSize);
  CHECK(none.tally().at("squared_norm").bytes == 2 * 400 + 8);
}
