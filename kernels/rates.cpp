#include "kernels/rates.h"

#include <omp.h>

#include <chrono>
#include <cstring>

#include "kernels/memory.h"
#include "kernels/ops/fill.h"
#include "kernels/ops/matmul.h"

namespace trireme {

namespace {

template <class F>
double seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Calls f(begin, size) for one part of [0, bytes) per thread: a thread copies the pages it touched first, near to its core.
template <class F>
void on_parts(int64_t bytes, const F& f) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), i = omp_get_thread_num();
    const int64_t begin = bytes * i / threads, end = bytes * (i + 1) / threads;
    f(begin, static_cast<size_t>(end - begin));
  }
}

// On a GPU work is handed over ahead of its execution: so many at once hide what that takes.
constexpr int kAhead = 20;

// Of random numbers: those of one value cost a processor less power, and so less time, than any that a model has.
void fill_random(Stream& stream, Arena& arena, const Tensor& t) {
  const Frame frame(arena);
  const int64_t n = std::min<int64_t>(t.size(), 1 << 16);
  const Tensor wide = arena.take(Dtype::f32, {n}), all = t.view({t.size()});
  run(stream, FillNormal{.x = wide, .stddev = 0.5f, .key = 7});
  for (int64_t at = 0; at < t.size(); at += n) {
    const int64_t length = std::min(n, t.size() - at);
    run(stream, Cast{.y = all.slice(at, at + length), .x = wide.slice(0, length)});
  }
}

double best_time(Device& device, Dtype dtype, const ProductShape& s, double least_seconds) {
  const Dtype out = s.accumulate ? Dtype::f32 : dtype;
  Arena arena(device, (s.m * s.k + s.k * s.n) * bytes_of(dtype) + s.m * s.n * bytes_of(out) + 4 * (1 << 16) + 4 * Arena::kAlign,
              "product rate");
  Stream& stream = device.compute();
  const Tensor a = s.transpose_a ? arena.take(dtype, {s.k, s.m}) : arena.take(dtype, {s.m, s.k});
  const Tensor b = s.transpose_b ? arena.take(dtype, {s.n, s.k}) : arena.take(dtype, {s.k, s.n});
  const Matmul product{.c = arena.take(out, {s.m, s.n}),
                       .a = a,
                       .b = b,
                       .transpose_a = s.transpose_a,
                       .transpose_b = s.transpose_b,
                       .accumulate = s.accumulate};
  for (const Tensor& t : {a, b}) fill_random(stream, arena, t);
  run(stream, product);
  stream.finish();
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int runs = 0; runs < 3 || total < least_seconds; ++runs) {
    const int ahead = stream.place() == Place::cuda ? kAhead : 1;
    const double time = seconds([&] {
      for (int i = 0; i < ahead; ++i) run(stream, product);
      stream.finish();
    });
    best = std::min(best, time / ahead), total += time;
  }
  return best;
}

}  // namespace

double copy_bandwidth(Device& device, int64_t bytes) {
  Buffer from(device, bytes, "copy rate"), to(device, bytes, "copy rate");
  if (device.place() == Place::cuda) {
    Stream& stream = device.compute();
    const auto copies = [&] {
      for (int i = 0; i < kAhead; ++i) copy_bytes(*stream.cuda().lane, to.data(), from.data(), bytes);
      stream.finish();
    };
    copies();
    return 2 * static_cast<double>(bytes) * kAhead / seconds(copies) * 1e-9;
  }
  on_parts(bytes, [&](int64_t begin, size_t size) {  // untouched pages would all be one page of zeros
    std::memset(from.data() + begin, 1, size);
    std::memset(to.data() + begin, 2, size);
  });
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 11; ++i) {
    const double time = seconds(
        [&] { on_parts(bytes, [&](int64_t begin, size_t size) { std::memcpy(to.data() + begin, from.data() + begin, size); }); });
    if (i > 0) best = std::min(best, time);
  }
  return 2 * static_cast<double>(bytes) / best * 1e-9;
}

double product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes, double least_seconds) {
  double flops = 0, time = 0;
  for (const ProductShape& s : shapes) {
    const double count = static_cast<double>(s.count);
    flops += count * 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    time += count * best_time(device, dtype, s, least_seconds);
  }
  return time > 0 ? flops / time * 1e-9 : 0;
}

}  // namespace trireme
