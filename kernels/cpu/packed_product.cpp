#include "kernels/cpu/packed_product.h"

#include <omp.h>
#include <unistd.h>

#include "kernels/cpu/packing.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace trireme {

namespace {

constexpr int64_t kPairs = 1024;                          // at most, that a tile sums at once: a panel stays in L2
constexpr int64_t kPanels = 8;                            // that are packed at once, where rows of memory cross them
constexpr int64_t kTasks = 6;                             // for each thread, where there are panels enough
constexpr int64_t kSlabRows = 1020, kSlabColumns = 4096;  // of c that are summed at the same time, if k is longer than kPairs

// Bytes of panels that a core packs at once, and multiplies by half as many of the other operand: both stay in its L2.
int64_t kept_bytes() {
  static const int64_t bytes = [] {
    const int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::clamp<int64_t>(cache, 512 << 10, 2 << 20) * 3 / 8;
  }();
  return bytes;
}

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// 16 or 32 registers hold the sums, two vectors of b and a broadcast element of a.
constexpr int kPlainRows = sizeof(Vec) == 64 ? 12 : 6;

[[gnu::noinline]] void multiply_plain(const std::byte* a, const std::byte* b, int64_t pairs, float* sums, Ahead ahead) {
  Vec sum[kPlainRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kPlainRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sum[r][v] = load(sums + r * kColumns + v * kLanes);
  const auto* left = reinterpret_cast<const float*>(a);
  const auto* right = reinterpret_cast<const float*>(b);
  const std::byte* next = ahead.at;
#pragma GCC unroll 2
  for (int64_t k = 0; k < 2 * pairs; ++k, left += kPlainRows, right += kColumns, next += ahead.bytes / 2) {
    __builtin_prefetch(next, 0, 2);
    Vec row[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) row[v] = load(right + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kPlainRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] += left[r] * row[v];
  }
#pragma GCC unroll 12
  for (int r = 0; r < kPlainRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) store(sums + r * kColumns + v * kLanes, sum[r][v]);
}

// One of the two operands in panels of lines.
struct Side {
  Lines lines;
  int64_t width, pair_bytes;
  void (*pack)(const Packing&);

  int64_t panels(int64_t count) const { return quotient_up(count, width); }
  int64_t bytes(int64_t pairs) const { return pairs * width * pair_bytes; }  // of a panel
};

// A rectangle of c, and a range of k.
struct Slab {
  int64_t row, rows, column, columns, begin, end;
  bool first, last;  // ranges of k
  int64_t pairs() const { return quotient_up(end - begin, 2); }
};

// Lines from `first` on.
struct Range {
  int64_t first, panels;
};

// Those of a tile, and the one of the inner operand after its own.
struct Panels {
  const std::byte *a, *b, *next;
};

class PackedProduct {
 public:
  PackedProduct(const Cpu& cpu, const Matmul& op, const PackedTile& tile)
      : op_(op),
        tile_(tile),
        a_{{op.a.data(), op.m(), op.k(), !op.transpose_a}, tile.rows, tile.pair_of_a, tile.pack_a},
        b_{{op.b.data(), op.n(), op.k(), op.transpose_b}, tile.columns, tile.pair_of_b, tile.pack_b},
        ranges_(quotient_up(op.k(), 2 * kPairs)),
        step_(quotient_up(quotient_up(op.k(), 2), ranges_) * 2),
        rows_(ranges_ > 1 ? std::min(op.m(), kSlabRows) : op.m()),
        columns_(ranges_ > 1 ? std::min(op.n(), kSlabColumns) : op.n()) {
    // Short sums spend their time on c, and its rows lie in memory one after the other.
    a_outside_ = rows_ > columns_ || (op.accumulate && op.k() <= 512);
    const int64_t pairs = step_ / 2, threads = omp_get_max_threads();
    group_ = std::clamp<int64_t>(kept_bytes() / outside().bytes(pairs), 1,
                                 std::max<int64_t>(1, outside().panels(a_outside_ ? rows_ : columns_) / (kTasks * threads)));
    inside_bytes_ = inside().panels(a_outside_ ? columns_ : rows_) * inside().bytes(pairs);
    group_bytes_ = round_up(group_ * outside().bytes(pairs), 64);
    const int64_t sums = ranges_ > 1 ? a_.panels(rows_) * b_.panels(columns_) * tile_bytes() : threads * tile_bytes();
    std::byte* const memory = cpu.workspace->reserve(round_up(inside_bytes_, 64) + threads * group_bytes_ + sums);
    packed_ = memory, groups_ = packed_ + round_up(inside_bytes_, 64);
    sums_ = reinterpret_cast<float*>(groups_ + threads * group_bytes_);
  }

  void run() {
    for (int64_t column = 0; column < op_.n(); column += columns_)
      for (int64_t row = 0; row < op_.m(); row += rows_)
        for (int64_t begin = 0; begin < op_.k(); begin += step_)
          run({.row = row,
               .rows = std::min(rows_, op_.m() - row),
               .column = column,
               .columns = std::min(columns_, op_.n() - column),
               .begin = begin,
               .end = std::min(op_.k(), begin + step_),
               .first = begin == 0,
               .last = begin + step_ >= op_.k()});
  }

 private:
  const Side& outside() const { return a_outside_ ? a_ : b_; }
  const Side& inside() const { return a_outside_ ? b_ : a_; }
  int64_t tile_bytes() const { return tile_.rows * tile_.columns * 4; }

  void run(const Slab& s) {
    const Side& in = inside();
    const int64_t first = a_outside_ ? s.column : s.row, panels = in.panels(a_outside_ ? s.columns : s.rows);
    const int64_t groups = quotient_up(outside().panels(a_outside_ ? s.rows : s.columns), group_);
    const int64_t parts = std::clamp<int64_t>(omp_get_max_threads() * kTasks / 2 / groups, 1, panels);
    const int64_t some = std::clamp<int64_t>(panels / (2 * omp_get_max_threads()), 1, kPanels);
#pragma omp parallel if (s.rows * s.columns * s.pairs() > 32768)
    {
#pragma omp for schedule(static)
      for (int64_t i = 0; i < panels; i += some)
        pack(s, in, {first + i * in.width, std::min(some, panels - i)}, packed_ + i * in.bytes(s.pairs()));
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < groups * parts; ++task) {
        const int64_t part = task % parts;
        sum_group(s, task / parts * group_, panels * part / parts, panels * (part + 1) / parts);
      }
    }
  }

  static void pack(const Slab& s, const Side& side, const Range& r, std::byte* to) {
    side.pack({side.lines, r.first, r.panels, s.begin, s.end, to, side.bytes(s.pairs())});
  }

  // Packs a group of the outer operand's panels, and multiplies it by panels [begin, end) of the other.
  void sum_group(const Slab& s, int64_t group, int64_t begin, int64_t end) {
    const Side &out = outside(), &in = inside();
    const int64_t first = a_outside_ ? s.row : s.column, panels = out.panels(a_outside_ ? s.rows : s.columns);
    const int64_t last = std::min(panels, group + group_);
    std::byte* const memory = groups_ + omp_get_thread_num() * group_bytes_;
    const auto mine = [&](int64_t o) { return memory + (o - group) * out.bytes(s.pairs()); };
    const auto shared = [&](int64_t i) { return packed_ + i * in.bytes(s.pairs()); };
    for (int64_t o = group; o < last; o += kPanels) pack(s, out, {first + o * out.width, std::min(kPanels, last - o)}, mine(o));
    // Neighbours in a row of c follow one another, so that the processor foresees its memory.
    const int64_t some = a_outside_ ? std::max<int64_t>(1, kept_bytes() / 2 / in.bytes(s.pairs())) : 1;
    for (int64_t at = begin; at < end; at += some)
      for (int64_t o = group; o < last; ++o)
        for (int64_t i = at; i < std::min(end, at + some); ++i)
          a_outside_ ? sum(s, o, i, {mine(o), shared(i), shared(i + 1)}) : sum(s, i, o, {shared(i), mine(o), shared(i + 1)});
  }

  // The tile of panel i of a and panel j of b.
  void sum(const Slab& s, int64_t i, int64_t j, const Panels& p) {
    const int64_t tile = ranges_ > 1 ? i * b_.panels(columns_) + j : omp_get_thread_num();
    float* const sums = sums_ + tile * tile_.rows * tile_.columns;
    const int64_t row = s.row + i * tile_.rows, column = s.column + j * tile_.columns;
    if (s.first) std::fill_n(sums, tile_.rows * tile_.columns, 0.0f);
    if (s.last) foresee(row, column);
    tile_.multiply(p.a, p.b, s.pairs(), sums, {p.next, inside().width * inside().pair_bytes});
    if (!s.last) return;
    op_.c.dtype() == Dtype::bf16 ? finish(static_cast<Bf16*>(op_.c.data()), sums, row, column)
                                 : finish(static_cast<float*>(op_.c.data()), sums, row, column);
  }

  // Rows of c are far apart: the processor would not fetch the tile's by itself while it multiplies.
  void foresee(int64_t row, int64_t column) const {
    const int64_t size = bytes_of(op_.c.dtype()), end = std::min(column + tile_.columns, op_.n());
    const auto* const c = static_cast<const std::byte*>(op_.c.data());
    for (int64_t r = row; r < std::min(row + tile_.rows, op_.m()); ++r)
      for (int64_t j = column; j < end; j += 64 / size) __builtin_prefetch(c + (r * op_.n() + j) * size, 1);
  }

  template <class T>
  void finish(T* all, const float* sums, int64_t row, int64_t column) {
    const int64_t n = op_.n(), rows = std::min(tile_.rows, op_.m() - row), columns = std::min(tile_.columns, n - column);
    const float* const bias = op_.bias ? static_cast<const float*>(op_.bias.data()) + column : nullptr;
    for (int64_t r = 0; r < rows; ++r, sums += tile_.columns) {
      T* const c = all + (row + r) * n + column;
      if (op_.accumulate) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) c[j] = to<T>(to_float(c[j]) + (bias != nullptr ? sums[j] + bias[j] : sums[j]));
      } else if (bias != nullptr) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) c[j] = to<T>(sums[j] + bias[j]);
      } else {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) c[j] = to<T>(sums[j]);
      }
    }
  }

  const Matmul& op_;
  const PackedTile& tile_;
  Side a_, b_;
  int64_t ranges_, step_;   // of k
  int64_t rows_, columns_;  // of a slab
  bool a_outside_ = false;  // its panels are packed by the tasks, each in a group; those of the other operand at first, for all
  int64_t group_ = 1, group_bytes_ = 0, inside_bytes_ = 0;
  std::byte *packed_ = nullptr, *groups_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

const PackedTile& plain_tile(Dtype operands) {
  static constexpr PackedTile of_f32 = tile_of<PlainF32, PlainF32, kPlainRows, kColumns>(multiply_plain);
  static constexpr PackedTile of_bf16 = tile_of<WidenedBf16, WidenedBf16, kPlainRows, kColumns>(multiply_plain);
  return operands == Dtype::bf16 ? of_bf16 : of_f32;
}

void multiply_packed(const Cpu& cpu, const Matmul& op, const PackedTile& tile) { PackedProduct(cpu, op, tile).run(); }

}  // namespace trireme
