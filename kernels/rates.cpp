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

double best_time(Device& device, Dtype dtype, const ProductShape& s, double least_seconds) {
  const Dtype out = s.accumulate ? Dtype::f32 : dtype;
  Arena arena(device, (s.m * s.k + s.k * s.n) * bytes_of(dtype) + s.m * s.n * bytes_of(out) + 3 * Arena::kAlign, "product rate");
  Stream& stream = device.compute();
  const Tensor a = s.transpose_a ? arena.take(dtype, {s.k, s.m}) : arena.take(dtype, {s.m, s.k});
  const Tensor b = s.transpose_b ? arena.take(dtype, {s.n, s.k}) : arena.take(dtype, {s.k, s.n});
  const Matmul product{.c = arena.take(out, {s.m, s.n}),
                       .a = a,
                       .b = b,
                       .transpose_a = s.transpose_a,
                       .transpose_b = s.transpose_b,
                       .accumulate = s.accumulate};
  for (const Tensor& t : {a, b}) run(stream, Fill{.x = t, .value = 0.37f});
  run(stream, product);
  stream.finish();
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int runs = 0; runs < 3 || total < least_seconds; ++runs) {
    const double time = seconds([&] { run(stream, product), stream.finish(); });
    best = std::min(best, time), total += time;
  }
  return best;
}

}  // namespace

double copy_bandwidth(Device& device, int64_t bytes) {
  Buffer from(device, bytes, "copy rate"), to(device, bytes, "copy rate");
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
