#include "kernels/ops/fill.h"

#include <cmath>
#include <functional>
#include <limits>

#include "base/philox.h"
#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/fill.h"

using namespace trireme;

namespace {

const std::vector<int64_t> kFillSizes{1, 3, 17, 63, 100, 257, 8191, 8193, 50001};

}  // namespace

TEST_CASE("fill writes its value everywhere and nowhere else") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t n : kFillSizes) {
    HostTensor x = random_tensor(dtype, {n + 2, 1}, 1);
    const double first = x[0], last = x[n + 1];
    run(device.compute(), Fill{.x = x.tensor().slice(1, n + 1), .value = 1.1f});
    Doubles wanted(static_cast<size_t>(n + 2), dtype == Dtype::bf16 ? static_cast<float>(Bf16(1.1f)) : 1.1f);
    wanted.front() = first, wanted.back() = last;
    REQUIRE(x.values() == wanted);
  }
}

TEST_CASE("a cast rounds to nearest even and keeps infinities and NaN") {
  Device device(tested_place());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  HostTensor x(Dtype::f32, {9}, {1.00390625, 1.01171875, -1.00390625, kInfinity, -kInfinity, 0.0, 3.4e38, 1e-40, 3.0});
  HostTensor y(Dtype::bf16, {9}), back(Dtype::f32, {9});
  run(device.compute(), Cast{.y = y, .x = x});
  CHECK(y.values() == HostTensor(Dtype::bf16, {9}, x.values()).values());
  CHECK(Doubles{y[0], y[1], y[2], y[3], y[6]} == Doubles{1.0, 1.015625, -1.0, kInfinity, kInfinity});
  run(device.compute(), Cast{.y = back, .x = y});
  CHECK(back.values() == y.values());

  // Any NaN, even if all its set bits are in the truncated half.
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff80ffffu, 0xffffffffu}) {
    HostTensor nan(Dtype::f32, {33});
    for (int i = 0; i < 33; ++i) nan.tensor().as<float>()[i] = std::bit_cast<float>(bits);
    HostTensor rounded(Dtype::bf16, {33});
    run(device.compute(), Cast{.y = rounded, .x = nan});
    for (int i = 0; i < 33; ++i) CHECK(std::isnan(rounded[i]));
  }
}

TEST_CASE("a cast agrees with the scalar rounding at every size, to and from either dtype") {
  Device device(tested_place());
  const Dtype from = GENERATE(Dtype::f32, Dtype::bf16), into = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t n : kFillSizes) {
    const HostTensor x = random_tensor(from, {n}, 2);
    HostTensor y(into, {n});
    run(device.compute(), Cast{.y = y, .x = x});
    REQUIRE(y == HostTensor(into, {n}, x.values()));
  }
}

TEST_CASE("a cast of columns takes those of each row") {
  Device device(tested_place());
  const Dtype from = GENERATE(Dtype::f32, Dtype::bf16), into = GENERATE(Dtype::f32, Dtype::bf16);
  struct Block {
    int64_t rows, columns, first, n;
  };
  for (const Block& b :
       {Block{1, 1, 0, 1}, {3, 64, 16, 32}, {3, 64, 17, 32}, {5, 67, 8, 16}, {2, 4096, 0, 4096}, {3, 70000, 66, 69001}}) {
    INFO(b.rows << " rows of " << b.columns << ", " << b.n << " from " << b.first);
    const HostTensor x = random_tensor(from, {b.rows, b.columns}, 2);
    const Doubles all = x.values();
    Doubles wanted;
    for (int64_t row = 0; row < b.rows; ++row)
      wanted.insert(wanted.end(), all.begin() + row * b.columns + b.first, all.begin() + row * b.columns + b.first + b.n);
    HostTensor y(into, {b.rows, b.n});
    run(device.compute(), CastColumns{.y = y, .x = x, .first = b.first});
    device.compute().finish();
    REQUIRE(y == HostTensor(into, {b.rows, b.n}, wanted));
  }
  HostTensor x(from, {2, 8}), y(into, {2, 4});
  CHECK_THROWS_AS(run(device.compute(), CastColumns{.y = y, .x = x, .first = 5}), Error);
}

TEST_CASE("add rounds the sum once and may write over an operand") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t n : kFillSizes) {
    HostTensor a = random_tensor(dtype, {n}, 3), b = random_tensor(dtype, {n}, 4), y(dtype, {n});
    Doubles wanted;
    for (int64_t i = 0; i < n; ++i) wanted.push_back(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    run(device.compute(), Add{.y = y, .a = a, .b = b});
    REQUIRE(y == HostTensor(dtype, {n}, wanted));
    run(device.compute(), Add{.y = a, .a = a, .b = b});
    REQUIRE(a == y);
    run(device.compute(), Add{.y = b, .a = b, .b = b});
  }
}

TEST_CASE("sum adds to its total, to the last bit the same with any number of threads") {
  Device device(tested_place());
  for (const int64_t n : kFillSizes) {
    const HostTensor x = random_tensor(Dtype::f32, {n}, 5);
    std::vector<HostTensor> totals;
    for (const int count : {1, 2, 3}) {
      const Threads threads(count);
      totals.emplace_back(Dtype::f32, std::initializer_list<int64_t>{1}, Doubles{0.5});
      run(device.compute(), SumInto{.total = totals.back(), .x = x, .scale = 0.25f});
    }
    CHECK(totals[0][0] == Approx(0.5 + 0.25 * reference::sum(x.values())).epsilon(1e-6));
    CHECK(totals[0] == totals[1]);
    CHECK(totals[0] == totals[2]);
  }
}

TEST_CASE("a sum is taken in double") {
  Device device(tested_place());
  HostTensor x(Dtype::f32, {20001}, Doubles(20001, 1.0)), total(Dtype::f32, {1});
  x.set(0, 1e9), x.set(20000, -1e9);
  run(device.compute(), SumInto{.total = total, .x = x});
  CHECK(total[0] == 19999);
}

TEST_CASE("the bias gradient adds the sum of its rows, the same bits with any number of threads") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t rows : {1, 3, 100, 257})
    for (const int64_t cols : {1, 17, 63, 129, 768}) {
      const HostTensor dy = random_tensor(dtype, {rows, cols}, 6), before = random_tensor(Dtype::f32, {cols}, 7);
      Doubles wanted = reference::bias_backward(dy.values(), cols);
      for (int64_t c = 0; c < cols; ++c) wanted[static_cast<size_t>(c)] += before[c];
      std::vector<HostTensor> dbias(3, before);
      for (const int count : {1, 2, 3}) {
        const Threads threads(count);
        run(device.compute(), BiasBackward{.dbias = dbias[static_cast<size_t>(count - 1)], .dy = dy});
      }
      REQUIRE(close(dbias[0], wanted, 2e-6));
      REQUIRE(dbias[0] == dbias[1]);
      REQUIRE(dbias[0] == dbias[2]);
    }
}

TEST_CASE("the bias gradient's reference agrees with finite differences") {
  const int64_t rows = 5, cols = 7;
  const Doubles dy = random_doubles(rows * cols, 8);
  const auto loss = [&](const Doubles& bias) {
    double sum = 0;
    for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * bias[i % static_cast<size_t>(cols)];
    return sum;
  };
  CHECK(close(reference::bias_backward(dy, cols), finite_differences(loss, Doubles(cols, 0.5)), 1e-8));
}

TEST_CASE("normal numbers depend on key and index alone, not on threads or on how the tensor is split") {
  Device device(tested_place());
  const int64_t n = 50001;
  HostTensor whole(Dtype::f32, {n}), parts(Dtype::f32, {n});
  {
    const Threads threads(1);
    run(device.compute(), FillNormal{.x = whole, .stddev = 0.02f, .key = 99, .first = 12});
  }
  const Threads threads(3);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 17}, {17, 40000}, {40000, n}})
    run(device.compute(), FillNormal{.x = parts.tensor().slice(begin, end), .stddev = 0.02f, .key = 99, .first = 12 + begin});
  CHECK(whole == parts);
  CHECK(whole[5] == static_cast<float>(0.02f * normal(99, 17)));
  const double mean = reference::sum(whole.values()) / n, variance = reference::squared_norm(whole.values()) / n - mean * mean;
  CHECK(std::abs(mean) < 0.02 * 4 / std::sqrt(n));
  CHECK(std::sqrt(variance) == Approx(0.02).epsilon(0.02));
}

TEST_CASE("moves and sums refuse shapes and dtypes that do not fit") {
  Device device(tested_place());
  Stream& s = device.compute();
  HostTensor f(Dtype::f32, {6}), g(Dtype::f32, {2, 3}), h(Dtype::bf16, {6}), one(Dtype::f32, {1}), i(Dtype::i32, {6});
  CHECK_THROWS_AS(run(s, Fill{.x = i}), Error);
  CHECK_THROWS_AS(run(s, Cast{.y = f, .x = one}), Error);
  CHECK_THROWS_AS(run(s, Cast{.y = f, .x = i}), Error);
  CHECK_THROWS_AS(run(s, Add{.y = f, .a = f, .b = g}), Error);
  CHECK_THROWS_AS(run(s, Add{.y = f, .a = f, .b = h}), Error);
  CHECK_THROWS_AS(run(s, SumInto{.total = f, .x = f}), Error);
  CHECK_THROWS_AS(run(s, SumInto{.total = one, .x = h}), Error);
  CHECK_THROWS_AS(run(s, BiasBackward{.dbias = f, .dy = g}), Error);
  CHECK_THROWS_AS(run(s, FillNormal{.x = h}), Error);
}

TEST_CASE("moves and sums on place none are counted and touch nothing") {
  Device none(Place::none);
  const Tensor f = imagined(Dtype::f32, {4, 8}), h = imagined(Dtype::bf16, {4, 8}), one = imagined(Dtype::f32, {1});
  run(none.compute(), Fill{.x = f});
  run(none.compute(), Cast{.y = h, .x = f});
  run(none.compute(), Add{.y = h, .a = h, .b = h});
  run(none.compute(), SumInto{.total = one, .x = f});
  run(none.compute(), BiasBackward{.dbias = imagined(Dtype::f32, {8}), .dy = h});
  run(none.compute(), FillNormal{.x = f});
  Tally& tally = none.tally();
  CHECK(tally.at("fill").bytes == 128);
  CHECK(tally.at("cast").bytes == 128 + 64);
  CHECK(tally.at("add").bytes == 3 * 64);
  CHECK(tally.at("sum").bytes == 128 + 8);
  CHECK(tally.at("bias_backward").bytes == 64 + 64);
  CHECK(tally.at("fill_normal").bytes == 128);
}

TEST_CASE("moves and sums of empty tensors do nothing") {
  Device device(tested_place());
  HostTensor none(Dtype::f32, {0}), total(Dtype::f32, {1}, {2.5});
  run(device.compute(), Fill{.x = none});
  run(device.compute(), Cast{.y = none, .x = none});
  run(device.compute(), SumInto{.total = total, .x = none});
  CHECK(total[0] == 2.5);
}

TEST_CASE("parts are summed in the order of a balanced tree, rounded once") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16), of_parts = GENERATE(Dtype::f32, Dtype::bf16);
  for (const int64_t count : {1, 2, 3, 5, 8, 16})
    for (const int64_t n : {1, 17, 255, 256, 257, 50001}) {
      if (n > 1000 && count != 5) continue;
      const HostTensor parts = random_tensor(of_parts, {count * n}, 7), before = random_tensor(dtype, {n}, 8);
      HostTensor y = before, more = before;
      run(device.compute(), SumParts{.y = y, .parts = parts});
      run(device.compute(), SumParts{.y = more, .parts = parts, .accumulate = true});
      const std::function<float(int64_t, int64_t, int64_t)> tree = [&](int64_t begin, int64_t end, int64_t i) -> float {
        if (end - begin == 1) return static_cast<float>(parts[begin * n + i]);
        const int64_t middle = begin + (end - begin) / 2;
        return tree(begin, middle, i) + tree(middle, end, i);
      };
      Doubles sums, added;
      for (int64_t i = 0; i < n; ++i) {
        sums.push_back(tree(0, count, i));
        added.push_back(static_cast<float>(before[i]) + static_cast<float>(sums.back()));
      }
      REQUIRE(y.values() == HostTensor(dtype, {n}, sums).values());
      REQUIRE(more.values() == HostTensor(dtype, {n}, added).values());
    }
}

TEST_CASE("addends enter a tree as a binary counter carries, in pieces or whole") {
  Device device(tested_place());
  const int64_t n = 700, levels = 5, piece = 257;
  HostTensor whole(Dtype::f32, {levels, n}), pieces(Dtype::f32, {levels, n});
  std::vector<Doubles> addends;
  for (int64_t number = 0; number + 1 < (int64_t{1} << levels); ++number) {
    const HostTensor addend = random_tensor(Dtype::f32, {n}, static_cast<uint64_t>(30 + number));
    addends.push_back(addend.values());
    run(device.compute(), TreeAdd{.tree = whole, .addend = addend, .index = number});
    for (int64_t at = 0; at < n; at += piece)
      run(device.compute(),
          TreeAdd{.tree = pieces, .addend = addend.tensor().slice(at, std::min(n, at + piece)), .index = number, .first = at});
    settle();
  }
  CHECK(whole == pieces);
  // 31 addends: each row k is in use and holds 2^k of them, the oldest in the highest.
  const std::function<float(size_t, size_t, size_t)> sum = [&](size_t begin, size_t count, size_t i) -> float {
    return count == 1 ? static_cast<float>(addends[begin][i]) : sum(begin, count / 2, i) + sum(begin + count / 2, count / 2, i);
  };
  size_t begin = 0;
  for (int64_t level = levels - 1; level >= 0; --level) {
    for (int64_t i = 0; i < n; ++i)
      REQUIRE(static_cast<float>(whole[level * n + i]) == sum(begin, size_t{1} << level, static_cast<size_t>(i)));
    begin += size_t{1} << level;
  }
  CHECK_THROWS_WITH(run(device.compute(), TreeAdd{.tree = whole, .addend = random_tensor(Dtype::f32, {n}, 1), .index = 31}),
                    ContainsSubstring("addend 31 of a tree of 5 levels"));
}

TEST_CASE("a tree is closed to the sum of its rows in use, the smaller ones first") {
  Device device(tested_place());
  for (const int64_t count : {1, 2, 3, 5, 6, 7, 12}) {
    constexpr int64_t kLevels = 4, kSize = 9000;
    const HostTensor before = random_tensor(Dtype::f32, {kLevels, kSize}, 9);
    HostTensor tree = before;
    run(device.compute(), TreeTotal{.tree = tree, .count = count});
    for (const int64_t i : {int64_t{0}, int64_t{17}, kSize - 1}) {
      float wanted = 0;
      bool any = false;
      for (int64_t level = 0; level < kLevels; ++level) {
        if ((count >> level & 1) == 0) continue;
        const auto row = static_cast<float>(before[level * kSize + i]);
        wanted = any ? row + wanted : row, any = true;
      }
      CAPTURE(count, i);
      CHECK(tree[i] == wanted);
    }
  }
}

TEST_CASE("normal numbers of a block of columns are those of the whole tensor") {
  Device device(tested_place());
  constexpr int64_t kRows = 7, kCols = 12;
  HostTensor whole(Dtype::f32, {kRows * kCols});
  run(device.compute(), FillNormal{.x = whole, .key = 5});
  // Rows [2, 6), columns [3, 8), from the block's element 4 on.
  HostTensor block(Dtype::f32, {16});
  run(device.compute(), FillNormal{.x = block, .key = 5, .first = 4, .origin = 2 * kCols + 3, .cols = 5, .stride = kCols});
  for (int64_t i = 0; i < 16; ++i) CHECK(block[i] == whole[(2 + (i + 4) / 5) * kCols + 3 + (i + 4) % 5]);
}
