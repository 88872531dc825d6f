#include "kernels/ops/cross_entropy.h"

#include <cmath>

#include "kernels/device.h"
#include "kernels/ops/fill.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/cross_entropy.h"

using namespace trireme;

namespace {

// Logits, targets of which every fifth is ignored, and the results of the ops.
struct CrossEntropyCase {
  HostTensor logits, targets, loss, lse;

  CrossEntropyCase(int64_t rows, int64_t classes, Dtype dtype = Dtype::f32)
      : logits(random_tensor(dtype, {rows, classes}, 1, 3)),
        targets(random_integers({rows}, 2, 0, classes)),
        loss(random_tensor(Dtype::f32, {rows}, 3)),
        lse(random_tensor(Dtype::f32, {rows}, 4)) {
    for (int64_t n = 1; n < rows; n += 5) targets.set(n, -1 - n);
  }
  void forward(Device& device, float z_loss) {
    run(device.compute(), CrossEntropyForward{.loss = loss, .lse = lse, .logits = logits, .targets = targets, .z_loss = z_loss});
  }
  void backward(Device& device, const HostTensor& dlogits, float z_loss, float scale) {
    run(device.compute(),
        CrossEntropyBackward{
            .dlogits = dlogits, .logits = logits, .lse = lse, .targets = targets, .z_loss = z_loss, .scale = scale});
  }
  void in_place(Device& device, float z_loss, float scale) {
    run(device.compute(),
        CrossEntropyInPlace{.loss = loss, .logits = logits, .targets = targets, .z_loss = z_loss, .scale = scale});
  }
};

// p - 1 may be a difference of near equals: hence the absolute part.
bool within(const HostTensor& dlogits, const Doubles& wanted) {
  for (int64_t i = 0; i < dlogits.size(); ++i)
    if (!(std::abs(dlogits[i] - wanted[i]) <= (rounding(dlogits.dtype()) + 2e-6) * std::abs(wanted[i]) + 3e-7)) return false;
  return true;
}

}  // namespace

TEST_CASE("a factor in memory times the scale gives the bits of their product") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const HostTensor factor(Dtype::f32, {1}, {0.125});
  CrossEntropyCase c(17, 1032, dtype);
  c.forward(device, 1e-2f);
  HostTensor once(dtype, {17, 1032}), product(dtype, {17, 1032});
  c.backward(device, product, 1e-2f, 0.25f);
  run(device.compute(),
      CrossEntropyBackward{
          .dlogits = once, .logits = c.logits, .lse = c.lse, .targets = c.targets, .z_loss = 1e-2f, .scale = 2, .factor = factor});
  CHECK(once == product);
  run(device.compute(),
      CrossEntropyInPlace{.loss = c.loss, .logits = c.logits, .targets = c.targets, .z_loss = 1e-2f, .scale = 2, .factor = factor});
  CHECK(c.logits == product);
  HostTensor sums(Dtype::f32, {2});
  run(device.compute(), SumInto{.total = sums.tensor().slice(0, 1), .x = c.loss, .scale = 2, .factor = factor});
  run(device.compute(), SumInto{.total = sums.tensor().slice(1, 2), .x = c.loss, .scale = 0.25f});
  device.compute().finish();
  CHECK(sums[0] == sums[1]);
  CHECK_THROWS_AS(run(device.compute(), SumInto{.total = factor, .x = c.loss, .factor = c.loss}), Error);
}

TEST_CASE("cross entropy matches its double reference, ignored rows are exactly zero") {
  Device device(tested_place());
  const float z_loss = GENERATE(0.0f, 1e-2f);
  const Dtype of_logits = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t rows : {1, 3, 17, 65})
    for (const int64_t classes : {1, 7, 64, 100, 257, 1032, 9001}) {
      CAPTURE(rows, classes, z_loss, of_logits);
      if (rows * classes > 200000) continue;
      CrossEntropyCase c(rows, classes, of_logits);
      c.forward(device, z_loss);
      const std::vector<int64_t> targets = integers(c.targets);
      const reference::CrossEntropy wanted = reference::cross_entropy(c.logits.values(), targets, z_loss);
      REQUIRE(close(c.loss, wanted.loss, 1e-6));
      REQUIRE(close(c.lse, wanted.lse, 1e-6));
      const Doubles gradient = reference::cross_entropy_backward(c.logits.values(), targets, z_loss, 0.25f);
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        if (of_logits == Dtype::bf16 && dtype == Dtype::f32) continue;
        HostTensor dlogits = random_tensor(dtype, {rows, classes}, 5);
        c.backward(device, dlogits, z_loss, 0.25f);
        REQUIRE(within(dlogits, gradient));
        for (int64_t n = 1; n < rows; n += 5) {
          REQUIRE(c.loss[n] == 0);
          for (int64_t i = 0; i < classes; ++i)
            if (dlogits[n * classes + i] != 0) FAIL("row " << n << " class " << i << " is " << dlogits[n * classes + i]);
        }
      }
    }
}

TEST_CASE("cross entropy's gradient may write over the logits, and a NaN in an ignored row stays there") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  CrossEntropyCase c(17, 257, dtype);
  c.logits.set(257 + 5, NAN);
  c.forward(device, 1e-3f);
  HostTensor dlogits(dtype, {17, 257});
  c.backward(device, dlogits, 1e-3f, 0.5f);
  c.backward(device, c.logits, 1e-3f, 0.5f);
  CHECK(c.logits == dlogits);
  for (const double x : dlogits.values()) REQUIRE(std::isfinite(x));
  CHECK(c.loss[1] == 0);
}

TEST_CASE("cross entropy in place has the bits of forward and of backward after it") {
  Device device(tested_place());
  const float z_loss = GENERATE(0.0f, 1e-2f);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t rows : {1, 3, 17})
    for (const int64_t classes : {1, 7, 64, 257, 1032, 9001}) {
      CAPTURE(rows, classes, z_loss, dtype);
      CrossEntropyCase c(rows, classes, dtype), at_once(rows, classes, dtype);
      if (rows > 1) c.logits.set(classes, NAN), at_once.logits.set(classes, NAN);  // of an ignored row
      c.forward(device, z_loss);
      HostTensor dlogits = random_tensor(dtype, {rows, classes}, 5);
      c.backward(device, dlogits, z_loss, 0.25f);
      at_once.in_place(device, z_loss, 0.25f);
      REQUIRE(at_once.loss == c.loss);
      REQUIRE(at_once.logits == dlogits);
    }
}

TEST_CASE("columns of padding have no share in cross entropy, whatever they hold, and no gradient") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const float z_loss = 1e-2f;
  for (const auto& [classes, cols] : {std::pair<int64_t, int64_t>{1, 64}, {65, 72}, {257, 320}, {9001, 9024}}) {
    CAPTURE(classes, cols, dtype);
    constexpr int64_t kRows = 7;
    CrossEntropyCase whole(kRows, classes, dtype);
    HostTensor logits(dtype, {kRows, cols});
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t i = 0; i < cols; ++i) logits.set(n * cols + i, i < classes ? whole.logits[n * classes + i] : i % 2 ? NAN : 1e30);
    HostTensor loss(Dtype::f32, {kRows}), lse = loss, again = loss, dlogits = random_tensor(dtype, {kRows, cols}, 5);
    run(device.compute(),
        CrossEntropyForward{
            .loss = loss, .lse = lse, .logits = logits, .targets = whole.targets, .z_loss = z_loss, .valid = classes});
    run(device.compute(), CrossEntropyBackward{.dlogits = dlogits,
                                               .logits = logits,
                                               .lse = lse,
                                               .targets = whole.targets,
                                               .z_loss = z_loss,
                                               .scale = 0.25f,
                                               .valid = classes});
    run(device.compute(),
        CrossEntropyInPlace{
            .loss = again, .logits = logits, .targets = whole.targets, .z_loss = z_loss, .scale = 0.25f, .valid = classes});
    const std::vector<int64_t> targets = integers(whole.targets);
    REQUIRE(close(loss, reference::cross_entropy(whole.logits.values(), targets, z_loss).loss, 1e-6));
    const Doubles wanted = reference::cross_entropy_backward(whole.logits.values(), targets, z_loss, 0.25f);
    HostTensor of_classes(dtype, {kRows, classes});
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t i = 0; i < cols; ++i) {
        if (i < classes)
          of_classes.set(n * classes + i, dlogits[n * cols + i]);
        else
          REQUIRE(dlogits[n * cols + i] == 0);
      }
    REQUIRE(within(of_classes, wanted));
    REQUIRE(again == loss);
    REQUIRE(logits == dlogits);
  }
}

TEST_CASE("cross entropy of large logits keeps its digits, a NaN reaches the loss, and a class of minus infinity has no share") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  HostTensor logits(dtype, {5, 3}, {9984, 9984, 9984, -9984, -9984, -9984, 9984, 0, -9984, 0, NAN, 0, 1, -INFINITY, 1});
  HostTensor targets(Dtype::i32, {5}, {0, 1, 2, 0, 0}), loss(Dtype::f32, {5}), lse = loss, dlogits(dtype, {5, 3});
  run(device.compute(), CrossEntropyForward{.loss = loss, .lse = lse, .logits = logits, .targets = targets});
  run(device.compute(), CrossEntropyBackward{.dlogits = dlogits, .logits = logits, .lse = lse, .targets = targets});
  CHECK(loss[0] == Approx(std::log(3)).epsilon(1e-6));
  CHECK(loss[1] == Approx(std::log(3)).epsilon(1e-6));
  CHECK(loss[2] == 2 * 9984);
  CHECK(std::isnan(loss[3]));
  CHECK(loss[4] == Approx(std::log(2)).epsilon(1e-6));
  // lse is an f32 near 1e4: its last bit is worth 1e-3.
  const double bound = 1e-3 + rounding(dtype);
  CHECK(std::abs(dlogits[0] + 2.0 / 3) < bound);
  CHECK(std::abs(dlogits[4] + 2.0 / 3) < bound);
  CHECK((dlogits[6] == 1 && dlogits[7] == 0 && dlogits[8] == -1));
  CHECK(std::isnan(dlogits[10]));
  CHECK((dlogits[12] == Approx(-0.5).epsilon(1e-6) && dlogits[13] == 0));
  run(device.compute(), CrossEntropyInPlace{.loss = lse, .logits = logits, .targets = targets});
  CHECK((lse[0] == loss[0] && lse[2] == loss[2] && std::isnan(lse[3]) && lse[4] == loss[4]));
  CHECK((logits[6] == 1 && logits[8] == -1 && std::isnan(logits[9]) && std::isnan(logits[10]) && logits[13] == 0));
}

TEST_CASE("an infinite logit makes the loss NaN, whichever way it is computed") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t classes : {7, 600}) {
    CrossEntropyCase c(1, classes, dtype);
    c.logits.set(classes - 2, INFINITY);
    c.targets.set(0, 3);
    c.forward(device, 0);
    CHECK(std::isnan(c.loss[0]));
    c.in_place(device, 0, 1);
    CHECK(std::isnan(c.loss[0]));
  }
}

TEST_CASE("cross entropy gives the same bits twice and for any number of threads, over a vocabulary of 50257") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  CrossEntropyCase first(5, 50257, dtype);
  first.forward(device, 1e-4f);
  HostTensor gradient(Dtype::bf16, {5, 50257});
  first.backward(device, gradient, 1e-4f, 1);
  CHECK(close(first.loss, reference::cross_entropy(first.logits.values(), integers(first.targets), 1e-4f).loss, 1e-6));
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    CrossEntropyCase again(5, 50257, dtype);
    again.forward(device, 1e-4f);
    HostTensor other(Dtype::bf16, {5, 50257});
    again.backward(device, other, 1e-4f, 1);
    CHECK((again.loss == first.loss && again.lse == first.lse && other == gradient));
    again.in_place(device, 1e-4f, 1);
    CHECK(again.loss == first.loss);
    CHECK((dtype == Dtype::f32 || again.logits == gradient));
  }
}

TEST_CASE("cross entropy's reference backward agrees with finite differences") {
  const Doubles logits = random_doubles(4 * 7, 1, 2);
  const std::vector<int64_t> targets{3, -1, 0, 6};
  const auto loss = [&](const Doubles& at) { return 0.5 * dot(reference::cross_entropy(at, targets, 0.1).loss, Doubles(4, 1)); };
  CHECK(close(reference::cross_entropy_backward(logits, targets, 0.1, 0.5), finite_differences(loss, logits), 1e-8));
}

TEST_CASE("cross entropy refuses targets beyond the classes and shapes that do not fit, and does nothing with no rows") {
  Device device(tested_place()), none(Place::none);
  CrossEntropyCase c(3, 7);
  c.targets.set(2, 7);
  if (tested_place() == Place::cpu) {  // elsewhere values are not checked beforehand
    CHECK_THROWS_AS(c.forward(device, 0), Error);
    CHECK_THROWS_WITH(c.backward(device, c.logits, 0, 1), ContainsSubstring("targets[2] is 7, there are 7 classes"));
    CHECK_THROWS_WITH(c.in_place(device, 0, 1), ContainsSubstring("targets[2] is 7, there are 7 classes"));
    const HostTensor part(Dtype::f32, {3, 4}), sums(Dtype::f32, {2, 3});  // of two shards; column 3 of the last is padding
    for (const int64_t first : {0, 4}) {
      const ShardSums op{.sums = sums,
                         .logits = part,
                         .top = c.lse,
                         .targets = c.targets,
                         .first = first,
                         .valid = std::min<int64_t>(4, 7 - first),
                         .classes = 7};
      CHECK_THROWS_WITH(run(device.compute(), op), ContainsSubstring("targets[2] is 7, there are 7 classes"));
    }
  }
  c.targets = HostTensor(Dtype::f32, {3});
  CHECK_THROWS_AS(c.forward(device, 0), Error);
  c.targets = HostTensor(Dtype::i32, {4});
  CHECK_THROWS_AS(c.forward(device, 0), Error);
  CrossEntropyCase half(3, 7, Dtype::bf16);
  CHECK_THROWS_WITH(half.backward(device, HostTensor(Dtype::f32, {3, 7}), 0, 1), ContainsSubstring("logits bf16[3, 7]"));
  half.logits = HostTensor(Dtype::i32, {3, 7});
  CHECK_THROWS_AS(half.forward(device, 0), Error);
  CHECK_THROWS_AS(half.in_place(device, 0, 1), Error);
  CrossEntropyCase empty(0, 7);
  empty.forward(device, 0);
  empty.backward(device, empty.logits, 0, 1);
  empty.in_place(device, 0, 1);
  CHECK(empty.loss.size() == 0);
  const Tensor logits = imagined(Dtype::f32, {4, 8}), column = imagined(Dtype::f32, {4}), targets = imagined(Dtype::i32, {4});
  run(none.compute(), CrossEntropyForward{.loss = column, .lse = column, .logits = logits, .targets = targets});
  CHECK(none.tally().at("cross_entropy").bytes == 16 + 16 + 128 + 16);
  run(none.compute(), CrossEntropyInPlace{.loss = column, .logits = imagined(Dtype::bf16, {4, 8}), .targets = targets});
  CHECK(none.tally().at("cross_entropy_in_place").bytes == 16 + 2 * 64 + 16);
}

TEST_CASE("cross entropy in shards of the classes, the last ones padded, is that of all classes") {
  Device device(tested_place());
  constexpr float kZLoss = 1e-2f;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t shards : {1, 2, 3, 8})
    for (const int64_t classes : {8, 61, 257, 5000}) {
      CAPTURE(shards, classes, dtype);
      constexpr int64_t kRows = 17;
      const CrossEntropyCase c(kRows, classes, dtype);
      const std::vector<int64_t> targets = integers(c.targets);
      const int64_t cols = (classes + shards - 1) / shards;
      std::vector<HostTensor> logits;
      HostTensor top(Dtype::f32, {kRows}), parts(Dtype::f32, {2 * shards, kRows}), sums(Dtype::f32, {2, kRows});
      const auto valid = [&](int64_t shard) { return std::clamp<int64_t>(classes - shard * cols, 0, cols); };
      for (int64_t s = 0; s < shards; ++s) {
        HostTensor& mine = logits.emplace_back(random_tensor(dtype, {kRows, cols}, 9, 1e6));  // independent of the padding
        for (int64_t n = 0; n < kRows; ++n)
          for (int64_t i = 0; i < valid(s); ++i) mine.set(n * cols + i, c.logits[n * classes + s * cols + i]);
        run(device.compute(), ShardTop{.top = top, .logits = mine, .valid = valid(s), .join = s > 0});
      }
      for (int64_t s = 0; s < shards; ++s)
        run(device.compute(), ShardSums{.sums = parts.tensor().slice(2 * s, 2 * s + 2),
                                        .logits = logits[static_cast<size_t>(s)],
                                        .top = top,
                                        .targets = c.targets,
                                        .first = s * cols,
                                        .valid = valid(s),
                                        .classes = classes});
      run(device.compute(), SumParts{.y = sums, .parts = parts});
      run(device.compute(),
          ShardLoss{.loss = c.loss, .lse = c.lse, .top = top, .sums = sums, .targets = c.targets, .z_loss = kZLoss});
      const reference::CrossEntropy wanted = reference::cross_entropy(c.logits.values(), targets, kZLoss);
      REQUIRE(close(c.loss, wanted.loss, 1e-6));
      REQUIRE(close(c.lse, wanted.lse, 1e-6));

      const Doubles gradient = reference::cross_entropy_backward(c.logits.values(), targets, kZLoss, 0.25f);
      for (int64_t s = 0; s < shards; ++s) {
        HostTensor &dlogits = logits[static_cast<size_t>(s)], mine(dtype, {kRows, valid(s)});  // in place
        run(device.compute(), CrossEntropyBackward{.dlogits = dlogits,
                                                   .logits = dlogits,
                                                   .lse = c.lse,
                                                   .targets = c.targets,
                                                   .z_loss = kZLoss,
                                                   .scale = 0.25f,
                                                   .shard = true,
                                                   .first = s * cols,
                                                   .valid = valid(s)});
        Doubles part;
        for (int64_t n = 0; n < kRows; ++n)
          for (int64_t i = 0; i < cols; ++i) {
            if (i < valid(s))
              mine.set(n * valid(s) + i, dlogits[n * cols + i]),
                  part.push_back(gradient[static_cast<size_t>(n * classes + s * cols + i)]);
            else
              REQUIRE(dlogits[n * cols + i] == 0);
          }
        REQUIRE(within(mine, part));
      }
    }
}
