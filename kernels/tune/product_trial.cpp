#include "kernels/tune/product_trial.h"

#include <algorithm>

#include "base/clock.h"
#include "kernels/copy.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/quantize.h"

namespace trireme {
namespace {

// Products enqueued ahead on a GPU, to hide the launch overhead of short ones.
constexpr int kAhead = 20;
constexpr double kShort = 2e-3;   // seconds
constexpr double kLong = 0.5;     // seconds: one such product is a window of its own
constexpr double kWindow = 1e-3;  // seconds, shorter than a scheduler's turn: some windows have the cores to themselves

// The product of this shape, of tensors that take(dtype, dims) makes.
Matmul shaped_product(Dtype dtype, const ProductShape& s, const auto& take) {
  const Dtype out = s.result(dtype);
  Matmul product{.c = take(out, {s.m, s.n}),
                 .a = {},
                 .b = {},
                 .transpose_a = s.transpose_a,
                 .transpose_b = s.transpose_b,
                 .accumulate = s.accumulate};
  if (s.bits8) {
    product.a = take(*s.bits8, {s.m, s.k}), product.b = take(Dtype::e4m3, {s.n, s.k});
    product.a_scale = take(Dtype::f32, {1}), product.b_scale = take(Dtype::f32, {1});
  } else {
    product.a = s.transpose_a ? take(dtype, {s.k, s.m}) : take(dtype, {s.m, s.k});
    product.b = s.transpose_b ? take(dtype, {s.n, s.k}) : take(dtype, {s.k, s.n});
  }
  if (s.bias) product.bias = take(Dtype::f32, {s.n});
  if (s.pre_activation) product.pre_activation = take(out, {s.m, s.n});
  if (s.gelu_input) product.gelu_input = take(out, {s.m, s.n});
  if (s.sums) product.sums = take(Dtype::f32, {s.m});
  return product;
}

}  // namespace

Matmul imagined_product(Dtype dtype, const ProductShape& shape) {
  alignas(Arena::kAlign) static std::byte nowhere[1];
  return shaped_product(dtype, shape,
                        [](Dtype of, std::initializer_list<int64_t> dims) { return Tensor(nowhere, of, Place::cuda, dims); });
}

void fill_random(Stream& stream, Arena& arena, const Tensor& x, float stddev, uint64_t key) {
  const Frame frame(arena);
  const int64_t n = std::min(x.size(), kRandomBytes / 4);
  const Tensor wide = arena.take(Dtype::f32, {n}), all = x.view({x.size()});
  for (int64_t at = 0; at < x.size(); at += n) {
    const int64_t length = std::min(n, x.size() - at);
    run(stream, FillNormal{.x = wide, .stddev = stddev, .key = key, .first = at});
    run(stream, Cast{.y = all.slice(at, at + length), .x = wide.slice(0, length)});
  }
}

int64_t ProductTrial::need(Dtype dtype, const ProductShape& shape) {
  Device imagined(Place::none);
  ProductTrial trial(imagined, dtype, shape, Arena::kUnlimited);
  trial.results();
  return trial.arena_.peak();
}

ProductTrial::ProductTrial(Device& device, Dtype dtype, const ProductShape& shape)
    : ProductTrial(device, dtype, shape, need(dtype, shape)) {}

ProductTrial::ProductTrial(Device& device, Dtype dtype, const ProductShape& s, int64_t bytes)
    : device_(device),
      arena_(device, bytes, "a product to measure"),
      product_(shaped_product(dtype, s, [this](Dtype of, std::initializer_list<int64_t> dims) { return arena_.take(of, dims); })) {
  fill(product_.a, product_.a_scale), fill(product_.b, product_.b_scale);
  for (const Tensor& x : {product_.bias, product_.gelu_input})
    if (x) fill(x, {});
  restore();
}

void ProductTrial::fill(const Tensor& x, const Tensor& scale) {
  if (!scale) return fill_random(device_.compute(), arena_, x, 0.5f, 7);
  const Frame frame(arena_);
  const Tensor wide = arena_.take(Dtype::bf16, {x.dim(0), x.dim(1)});
  fill_random(device_.compute(), arena_, wide, 0.5f, 7);
  run(device_.compute(), Quantize{.scale = scale, .x = wide, .y = x});
}

void ProductTrial::restore() {
  if (product_.accumulate) run(device_.compute(), Fill{.x = product_.c, .value = 0});
  if (product_.sums) run(device_.compute(), Fill{.x = product_.sums, .value = 0});
}

void ProductTrial::append(std::vector<float>& results, const Tensor& from) {
  constexpr int64_t kMost = kRandomBytes / 4;
  const Frame frame(arena_);
  const Tensor all = from.view({from.size()});
  const int64_t n = std::min(from.size(), kMost);
  const Tensor wide = arena_.take(Dtype::f32, {n});
  for (const int64_t at : {int64_t{0}, from.size() - n}) {
    run(device_.compute(), Cast{.y = wide, .x = all.slice(at, at + n)});
    const size_t before = results.size();
    results.resize(before + static_cast<size_t>(n));
    copy(device_.compute(), Tensor(results.data() + before, Dtype::f32, Place::cpu, {n}), wide);
    device_.compute().finish();
  }
}

std::vector<float> ProductTrial::results() {
  restore();
  run(device_.compute(), product_);
  std::vector<float> results;
  append(results, product_.c);
  if (product_.pre_activation) append(results, product_.pre_activation);
  if (product_.sums) append(results, product_.sums);
  return results;
}

double ProductTrial::time(int count) const {
  Stream& stream = device_.compute();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) run(stream, product_);
  stream.finish();
  return seconds_since(begin);
}

double ProductTrial::seconds(double least_seconds) const {
  time(1);  // loads what the library loads at first use
  const double first = time(1);
  const int ahead = device_.place() == Place::cuda && first < kShort ? kAhead : 1;
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int rounds = 0; rounds < 3 || total < least_seconds; ++rounds) {
    const double seconds = time(ahead);
    best = std::min(best, seconds / ahead), total += seconds;
  }
  return best;
}

std::vector<double> ProductTrial::windows() const {
  const double first = time(1);
  std::vector<double> windows;
  if (first >= kLong) windows = {first, time(1), time(1)};
  const int count = device_.place() == Place::cuda && first < kShort ? kAhead : 1 + static_cast<int>(kWindow / first);
  while (first < kLong && std::ssize(windows) < kWindows) windows.push_back(time(count) / count);
  std::ranges::sort(windows);
  return windows;
}

}  // namespace trireme
