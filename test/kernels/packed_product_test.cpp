#include "kernels/cpu/packed_product.h"

#include <cmath>

#include "kernels/cpu/amx_tile.h"
#include "kernels/device.h"
#include "kernels/vector_bytes.h"
#include "test/catch.h"
#include "test/kernels/emulated_amx.h"
#include "test/kernels/product_operands.h"
#include "test/sanitized.h"

namespace trireme {
namespace {

struct TestedTile {
  const PackedTile* tile;
  Dtype operands;
};

const PackedTile& emulated_amx_tile() {
  static constexpr PackedTile tile = amx_tile_on<EmulatedAmx>();
  return tile;
}

// The tiles that this processor can compute, and AMX's on any.
std::vector<TestedTile> tiles() {
  std::vector<TestedTile> all{
      {&plain_tile(Dtype::bf16), Dtype::bf16}, {&plain_tile(Dtype::f32), Dtype::f32}, {&emulated_amx_tile(), Dtype::bf16}};
  if (read_cpu_facts().avx512_bf16) all.push_back({&bf16_tile(), Dtype::bf16});
  if (read_cpu_facts().amx_tiles) all.push_back({&amx_tile(), Dtype::bf16});
  return all;
}

void multiply(const TestedTile& tested, const Matmul& op, const PackedBlocks& blocks) {
  Device device(Place::cpu);
  Workspace workspace(device.ledger());
  multiply_packed(Cpu{.workspace = &workspace}, op, *tested.tile, blocks);
}

HostTensor multiply(const TestedTile& tested, const ProductOperands& o, HostTensor c, bool accumulate = false,
                    const PackedBlocks& blocks = {}) {
  Matmul op = o.product(c);
  op.bias = o.bias, op.accumulate = accumulate;
  multiply(tested, op, blocks);
  return c;
}

HostTensor multiply_without_bias(const TestedTile& tested, const ProductOperands& o, HostTensor c, const PackedBlocks& blocks) {
  multiply(tested, o.product(c), blocks);
  return c;
}

}  // namespace

// Edges of tiles and groups, and sums of one, two and several pieces of k. In builds with a sanitizer, emulated tiles take minutes
// for large products.
TEST_CASE("packed products match their double reference in every layout") {
  const bool transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  for (const TestedTile& tile : tiles())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {5, 15, 2},
                                  {6, 16, 33},
                                  {12, 32, 64},
                                  {13, 33, 65},
                                  {130, 70, 40},
                                  {132, 70, 40},
                                  {8, 40, 2050},
                                  {1028, 3, 30},
                                  {31, 257, 100},
                                  {3, 40, 2047},
                                  {9, 20, 2049},
                                  {14, 5, 4099},
                                  {1030, 3, 2050},
                                  {2, 4103, 2050}}) {
      if (kSanitized && tile.tile == &emulated_amx_tile() && m * n * k > 1000000) continue;
      const ProductOperands o({.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b}, tile.operands);
      CAPTURE(tile.tile->rows, name_of(tile.operands), m, n, k);
      const Doubles wanted = o.wanted_with_bias(Dtype::f32);
      for (const Dtype out : {Dtype::f32, Dtype::bf16}) {
        REQUIRE(close(multiply(tile, o, HostTensor(out, {m, n})), wanted, bound(o.shape, out)));
        const HostTensor before = random_tensor(out, {m, n}, 4);
        Doubles sums = wanted;
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += before[static_cast<int64_t>(i)];
        REQUIRE(close(multiply(tile, o, before, true), sums, bound(o.shape, out)));
      }
    }
}

TEST_CASE("a packed product has the same bits in blocks of any size") {
  const bool transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true), accumulate = GENERATE(false, true);
  for (const TestedTile& tile : tiles())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{70, 130, 301}, {200, 41, 300}}) {
      const ProductOperands o({.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b}, tile.operands);
      const HostTensor before = random_tensor(Dtype::f32, {m, n}, 4), whole = multiply(tile, o, before, accumulate);
      for (const PackedBlocks& blocks : {PackedBlocks{.k = 2},
                                         {.k = 64},
                                         {.k = 64, .inside = 1 << 12},
                                         {.k = 100, .inside = 1 << 13, .c = 2000},
                                         {.k = 30, .inside = 1, .c = 1, .columns = 50}}) {
        CAPTURE(tile.tile->rows, name_of(tile.operands), m, n, blocks.k, blocks.inside, blocks.c, blocks.columns);
        CHECK(multiply(tile, o, before, accumulate, blocks) == whole);
      }
    }
}

// The sums of whole tiles are then written to c at once, whatever was there.
TEST_CASE("a packed product without a bias has the bits of one whose bias is 0") {
  const bool transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  for (const TestedTile& tile : tiles())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{12, 32, 64}, {70, 131, 301}, {200, 41, 300}, {48, 64, 2050}}) {
      ProductOperands o({.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b}, tile.operands);
      o.bias = HostTensor(Dtype::f32, {n}, Doubles(static_cast<size_t>(n), 0.0));
      const HostTensor before(Dtype::f32, {m, n}, Doubles(static_cast<size_t>(m * n), std::nan(""))),
          whole = multiply(tile, o, before);
      CAPTURE(tile.tile->rows, name_of(tile.operands), m, n, k);
      REQUIRE(close(whole, o.wanted(), bound(o.shape, Dtype::f32)));
      for (const PackedBlocks& blocks : {PackedBlocks{},
                                         {.k = 64},
                                         {.k = 64, .inside = 1 << 12},
                                         {.k = 100, .inside = 1 << 13, .c = 2000},
                                         {.k = 30, .inside = 1, .c = 1, .columns = 50}}) {
        CAPTURE(blocks.k, blocks.inside, blocks.c, blocks.columns);
        CHECK((multiply_without_bias(tile, o, before, blocks) == whole));
      }
    }
}

TEST_CASE("a packed product has the same bits with any number of threads, and each row has them alone") {
  for (const TestedTile& tile : tiles())
    for (const bool transpose_b : {false, true}) {
      constexpr int64_t m = 52, n = 300, k = 2100;
      const ProductOperands o({.m = m, .n = n, .k = k, .transpose_b = transpose_b}, tile.operands);
      const HostTensor c(Dtype::f32, {m, n}), all = multiply(tile, o, c);
      for (const int count : {1, 2, 5}) {
        const Threads threads(count);
        CHECK(multiply(tile, o, c) == all);
      }
      const Doubles values = o.a.values(), whole = all.values();
      for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1}, {7, 13}, {51, 1}}) {
        ProductOperands some({.m = rows, .n = n, .k = k, .transpose_b = transpose_b}, tile.operands);
        some.a = HostTensor(tile.operands, {rows, k}, Doubles(values.begin() + first * k, values.begin() + (first + rows) * k));
        const Doubles part = multiply(tile, some, HostTensor(Dtype::f32, {rows, n})).values();
        CHECK(std::ranges::equal(part, std::span(whole).subspan(static_cast<size_t>(first * n), static_cast<size_t>(rows * n))));
      }
    }
}

TEST_CASE("kernels.products chooses oneDNN only where it has bf16 instructions") {
  const CpuFacts facts = read_cpu_facts();
  KernelsConfig config{.device = DeviceChoice::cpu, .threads = 1};
  const auto path = [&](ProductKernels products) {
    config.products = products;
    return open_device(config, 1).cpu().bf16_path();
  };
  CHECK_THAT(path(ProductKernels::ours), Catch::Matchers::EndsWith(", ours"));
  CpuFacts automatic = facts;
  automatic.products = ProductKernels::automatic;
  CHECK(path(ProductKernels::automatic) == automatic.bf16_path());
  if (facts.has_bf16())
    CHECK_FALSE(path(ProductKernels::onednn).ends_with(", ours"));
  else
    CHECK_THROWS_WITH(path(ProductKernels::onednn), ContainsSubstring("no bf16 instructions") && ContainsSubstring("auto or ours"));
  config.dtype = StepDtype::f32;
  CHECK_NOTHROW(path(ProductKernels::onednn));
}

TEST_CASE("bf16 instructions that are slower than those of f32 are used by choice alone") {
  for (const bool amx : {false, true}) {
    CpuFacts facts{.avx512_bf16 = true, .amx_bf16 = amx, .slow_bf16 = true};
    CHECK(facts.bf16_path() == (amx ? "AMX" : "AVX512-BF16"));
    facts.products = ProductKernels::ours;
    CHECK(facts.bf16_path() == "f32, ours");
    CHECK_FALSE(facts.own_bf16());
    facts.products = ProductKernels::automatic;
    CHECK(facts.bf16_path() == (amx ? "AMX" : "f32, ours"));
    CHECK(facts.own_f32() == !amx);
    facts.slow_bf16 = false;
    CHECK(facts.bf16_path() == (amx ? "AMX" : kVectorBytes == 64 ? "AVX512-BF16, ours" : "AVX512-BF16"));
    CHECK_FALSE(facts.own_f32());
    CHECK(facts.own_bf16());
  }
  CHECK_FALSE((read_cpu_facts().slow_bf16 && !read_cpu_facts().avx512_bf16));
}

TEST_CASE("our own products use AMX by choice, where the process may use its tiles") {
  CpuFacts facts{.avx512_bf16 = true, .amx_bf16 = true, .products = ProductKernels::ours, .amx_tiles = true};
  CHECK(facts.bf16_path() == "AMX, ours");
  facts.products = ProductKernels::automatic;
  CHECK(facts.bf16_path() == "AMX");
  facts.products = ProductKernels::ours, facts.amx_tiles = false;
  CHECK(facts.bf16_path() == "AVX512-BF16, ours");
  CHECK_FALSE((read_cpu_facts().amx_tiles && !read_cpu_facts().amx_bf16));
}

TEST_CASE("auto takes our own products of f32 where the processor has no bf16 instructions, and no wider vectors") {
  const CpuFacts old{.products = ProductKernels::automatic}, wide{.avx2 = true, .avx512 = true, .products = old.products};
  CHECK(old.own_f32());
  CHECK(wide.own_f32() == (kVectorBytes == 64));
  for (CpuFacts with : {CpuFacts{.avx512_bf16 = true}, CpuFacts{.amx_bf16 = true}}) {
    with.products = ProductKernels::automatic;
    CHECK_FALSE(with.own_f32());
    with.products = ProductKernels::ours;
    CHECK(with.own_f32());
  }
  CHECK_FALSE(CpuFacts{.products = ProductKernels::onednn}.own_f32());
  CpuFacts here = read_cpu_facts();
  here.products = ProductKernels::automatic;
  CHECK(open_device({.device = DeviceChoice::cpu, .threads = 1}, 1).cpu().own_f32() == here.own_f32());
}

TEST_CASE("kernels.products = ours multiplies f32, too") {
  const TestedTile tile{&plain_tile(Dtype::f32), Dtype::f32};
  const ProductOperands o({.m = 40, .n = 50, .k = 2500}, Dtype::f32);
  Device device(Place::cpu, {.products = ProductKernels::ours});
  HostTensor c(Dtype::f32, {40, 50}), packed = c;
  Matmul op = o.product(c);
  op.bias = o.bias;
  run(device.compute(), op);
  CHECK(c == multiply(tile, o, packed));
}

TEST_CASE("a packed product keeps NaN and infinity in their rows") {
  const int64_t k = GENERATE(9, 10);
  for (const TestedTile& tile : tiles()) {
    ProductOperands o({.m = 20, .n = 40, .k = k}, tile.operands);
    o.a.set(k * 3 + k - 1, std::numeric_limits<double>::quiet_NaN()), o.a.set(k * 5, std::numeric_limits<double>::infinity());
    const HostTensor c = multiply(tile, o, HostTensor(Dtype::bf16, {20, 40}));
    for (int64_t i = 0; i < c.size(); ++i)
      CHECK((i / 40 == 3 ? std::isnan(c[i]) : i / 40 == 5 ? std::isinf(c[i]) : std::isfinite(c[i])));
  }
}

}  // namespace trireme
