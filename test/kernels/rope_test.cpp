#include "kernels/ops/rope.h"

#include <cmath>

#include "kernels/device.h"
#include "test/catch.h"
#include "test/reference/compare.h"
#include "test/reference/rope.h"

using namespace trireme;

namespace {

struct RopeShape {
  int64_t rows, heads, shared, size, places;
};
const std::vector<RopeShape> kRopeShapes{
    {1, 1, 1, 2, 1}, {3, 3, 1, 6, 17}, {17, 4, 2, 34, 100}, {63, 6, 3, 64, 257}, {100, 2, 2, 126, 63}};

double rope_bound(Dtype dtype) { return dtype == Dtype::bf16 ? 1.01 * rounding(dtype) : 4 * rounding(dtype); }

HostTensor table_of(const RopeShape& s) {
  return HostTensor(Dtype::f32, {s.places, s.size / 2, 2}, reference::Rope{.theta = 500}.table(s.places, s.size));
}

// A fused projection and its parts.
struct Heads {
  HostTensor qkv, q, k, v;
  Heads(const RopeShape& s, Dtype dtype)
      : qkv(random_tensor(dtype, {s.rows, (s.heads + 2 * s.shared) * s.size}, 1)),
        q(random_tensor(dtype, {s.rows, s.heads, s.size}, 2)),
        k(random_tensor(dtype, {s.rows, s.shared, s.size}, 3)),
        v(random_tensor(dtype, {s.rows, s.shared, s.size}, 4)) {}
};

}  // namespace

TEST_CASE("the rope table matches its double reference, plain and with Llama 3.1's scaling") {
  Device device(tested_place());
  const auto rope =
      GENERATE(reference::Rope{}, reference::Rope{.theta = 1e6},
               reference::Rope{.theta = 500000, .factor = 8, .low_factor = 1, .high_factor = 4, .original_context = 8192},
               reference::Rope{.theta = 500, .factor = 32, .low_factor = 1, .high_factor = 4, .original_context = 60});
  for (const RopeShape& s : kRopeShapes) {
    HostTensor table(Dtype::f32, {s.places, s.size / 2, 2});
    run(device.compute(), RopeTable{.table = table,
                                    .theta = rope.theta,
                                    .factor = rope.factor,
                                    .low_factor = rope.low_factor,
                                    .high_factor = rope.high_factor,
                                    .original_context = rope.original_context});
    REQUIRE(close(table, rope.table(s.places, s.size), 2 * rounding(Dtype::f32)));
  }
}

TEST_CASE("Llama 3.1's scaling keeps short waves, stretches long ones and mixes between") {
  const reference::Rope plain{.theta = 500000}, scaled{.theta = 500000, .factor = 8, .original_context = 8192};
  CHECK(scaled.frequency(0, 128) == plain.frequency(0, 128));
  CHECK(scaled.frequency(63, 128) == Approx(plain.frequency(63, 128) / 8).epsilon(1e-14));
  int between = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double ratio = plain.frequency(i, 128) / scaled.frequency(i, 128);
    REQUIRE((ratio >= 1 - 1e-12 && ratio <= 8 + 1e-12));
    between += ratio > 1.001 && ratio < 7.999;
  }
  CHECK(between == 6);  // wave lengths between 2048 and 8192
}

TEST_CASE("splitting heads moves every element and turns q and k") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const RopeShape& s : kRopeShapes) {
    Heads h(s, dtype);
    const HostTensor table = table_of(s), positions = random_integers({s.rows}, 5, 0, s.places);
    const int64_t q = s.heads * s.size, kv = s.shared * s.size, cols = q + 2 * kv;
    const Doubles all = h.qkv.values();
    const Doubles wanted_q = reference::columns(all, cols, 0, q), wanted_k = reference::columns(all, cols, q, q + kv);

    run(device.compute(), SplitHeadsForward{.q = h.q, .k = h.k, .v = h.v, .qkv = h.qkv});
    REQUIRE(h.q.values() == wanted_q);
    REQUIRE(h.k.values() == wanted_k);
    REQUIRE(h.v.values() == reference::columns(all, cols, q + kv, cols));

    run(device.compute(), SplitHeadsForward{.q = h.q, .k = h.k, .v = h.v, .qkv = h.qkv, .positions = positions, .table = table});
    REQUIRE(close(h.q, reference::rotate(wanted_q, s.size, integers(positions), table.values()), rope_bound(dtype)));
    REQUIRE(close(h.k, reference::rotate(wanted_k, s.size, integers(positions), table.values()), rope_bound(dtype)));
    REQUIRE(h.v.values() == reference::columns(all, cols, q + kv, cols));
  }
}

TEST_CASE("the way back joins the heads' gradients") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const RopeShape& s : kRopeShapes) {
    Heads h(s, dtype);
    const int64_t q = s.heads * s.size, kv = s.shared * s.size, cols = q + 2 * kv;
    const auto part = [&](int64_t begin, int64_t end) { return reference::columns(h.qkv.values(), cols, begin, end); };
    run(device.compute(), SplitHeadsBackward{.dqkv = h.qkv, .dq = h.q, .dk = h.k, .dv = h.v});
    REQUIRE(part(0, q) == h.q.values());
    REQUIRE(part(q, q + kv) == h.k.values());
    REQUIRE(part(q + kv, cols) == h.v.values());
  }
}

TEST_CASE("rotate turns in place as the split does, and backward undoes it") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const RopeShape& s : kRopeShapes) {
    const HostTensor before = random_tensor(dtype, {s.rows, s.heads, s.size}, 6), table = table_of(s);
    const HostTensor positions = random_integers({s.rows}, 7, 0, s.places);
    HostTensor x = before, again = before;
    run(device.compute(), Rotate{.x = x, .positions = positions, .table = table});
    run(device.compute(), Rotate{.x = again, .positions = positions, .table = table});
    REQUIRE(close(x, reference::rotate(before.values(), s.size, integers(positions), table.values()), rope_bound(dtype)));
    REQUIRE(x == again);
    run(device.compute(), Rotate{.x = x, .positions = positions, .table = table, .backward = true});
    REQUIRE(close(x, before.values(), 3 * rope_bound(dtype)));
  }
}

TEST_CASE("rotate leaves the heads of a row alone that come after those it turns") {
  Device device(tested_place());
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const RopeShape& s : kRopeShapes)
    for (const int64_t heads : {int64_t{0}, int64_t{1}, s.heads}) {
      const HostTensor before = random_tensor(dtype, {s.rows, s.heads, s.size}, 6), table = table_of(s);
      const HostTensor positions = random_integers({s.rows}, 7, 0, s.places);
      HostTensor all = before, some = before;
      run(device.compute(), Rotate{.x = all, .positions = positions, .table = table});
      run(device.compute(), Rotate{.x = some, .positions = positions, .table = table, .heads = heads});
      bool right = true;
      for (int64_t i = 0; i < some.size(); ++i) right &= some[i] == (i / s.size % s.heads < heads ? all : before)[i];
      REQUIRE(right);
    }
}

TEST_CASE("rope's reference backward agrees with finite differences") {
  const std::vector<int64_t> positions{4, 0, 9};
  const Doubles table = reference::Rope{}.table(10, 6), x = random_doubles(3 * 2 * 6, 8), dy = random_doubles(3 * 2 * 6, 9);
  const auto loss = [&](const Doubles& at) { return dot(reference::rotate(at, 6, positions, table), dy); };
  CHECK(close(reference::rotate(dy, 6, positions, table, true), finite_differences(loss, x), 1e-8));
}

TEST_CASE("rope refuses shapes that do not fit and positions beyond its table") {
  Device device(tested_place());
  Stream& stream = device.compute();
  HostTensor qkv(Dtype::f32, {3, 16}), q(Dtype::f32, {3, 2, 4}), kv(Dtype::f32, {3, 1, 4}), table(Dtype::f32, {5, 2, 2});
  HostTensor positions(Dtype::i32, {3}, {0, 4, 2}), beyond(Dtype::i32, {3}, {0, 5, 2}), negative(Dtype::i32, {3}, {-1, 0, 0});
  const auto split = [&](const HostTensor& k, const HostTensor& at, const HostTensor& angles) {
    run(stream, SplitHeadsForward{.q = q, .k = k, .v = kv, .qkv = qkv, .positions = at, .table = angles});
  };
  CHECK_NOTHROW(split(kv, positions, table));
  if (tested_place() == Place::cpu) {  // elsewhere values are not checked beforehand
    CHECK_THROWS_WITH(split(kv, beyond, table), ContainsSubstring("positions[1] is 5"));
    CHECK_THROWS_AS(split(kv, negative, table), Error);
    CHECK_THROWS_AS(run(stream, Rotate{.x = q, .positions = beyond, .table = table}), Error);
  }
  CHECK_THROWS_AS(split(q, positions, table), Error);
  CHECK_THROWS_AS(split(kv, positions, kv), Error);
  CHECK_THROWS_AS(run(stream, SplitHeadsBackward{.dqkv = q, .dq = q, .dk = kv, .dv = kv}), Error);
  CHECK_THROWS_AS(run(stream, Rotate{.x = qkv, .positions = positions, .table = table}), Error);
  CHECK_THROWS_AS(run(stream, Rotate{.x = q, .positions = positions, .table = table, .heads = 3}), Error);
  CHECK_THROWS_AS(run(stream, RopeTable{.table = qkv}), Error);
  HostTensor odd(Dtype::f32, {3, 1, 5});
  CHECK_THROWS_WITH(run(stream, Rotate{.x = odd, .positions = positions, .table = table}), ContainsSubstring("pairs"));
}

TEST_CASE("rope on place none is counted and touches nothing") {
  Device none(Place::none);
  const Tensor qkv = imagined(Dtype::bf16, {3, 16}), q = imagined(Dtype::bf16, {3, 2, 4}), kv = imagined(Dtype::bf16, {3, 1, 4});
  const Tensor table = imagined(Dtype::f32, {5, 2, 2}), positions = imagined(Dtype::i32, {3});
  run(none.compute(), RopeTable{.table = table});
  run(none.compute(), SplitHeadsForward{.q = q, .k = kv, .v = kv, .qkv = qkv, .positions = positions, .table = table});
  run(none.compute(), SplitHeadsBackward{.dqkv = qkv, .dq = q, .dk = kv, .dv = kv});
  run(none.compute(), Rotate{.x = q, .positions = positions, .table = table});
  CHECK(none.tally().at("rope_table").bytes == 80);
  CHECK(none.tally().at("split_heads").bytes == 96 + 96 + 12 + 80);
  CHECK(none.tally().at("split_heads_backward").bytes == 192);
  CHECK(none.tally().at("rotate").bytes == 96 + 12 + 80);
  run(none.compute(), Rotate{.x = q, .positions = positions, .table = table, .heads = 1});
  CHECK(none.tally().at("rotate").bytes == 96 + 12 + 80 + 48 + 12 + 80);
}
