#include "kernels/tune/rates.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "kernels/tune/multiply_add.h"

namespace trireme {

namespace {

template <class F>
double seconds(const F& f) {
  const auto begin = Clock::now();
  f();
  return seconds_since(begin);
}

// Calls f(begin, size) for one part of [0, bytes) per thread: each thread copies the pages that it
// touched first, near to its core.
template <class F>
void on_parts(int64_t bytes, const F& f) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), i = omp_get_thread_num();
    const int64_t begin = bytes * i / threads, end = bytes * (i + 1) / threads;
    f(begin, static_cast<size_t>(end - begin));
  }
}

// Rounds enqueued ahead on a GPU, to hide the launch overhead; fewer if they would take longer than this.
constexpr int kRoundsAhead = 20;
constexpr double kCopying = 0.05, kRepeating = 0.5;  // seconds

// GFLOP/s of instructions that all threads repeat, which half of the runs reach. The best ones have a higher clock, which a
// processor gives for milliseconds and not for a step.
double rate_of(double (*instructions)(int64_t times)) {
  constexpr int64_t kTimes = 200'000;  // a millisecond
  std::vector<double> rates;
  for (const auto begin = Clock::now(); rates.empty() || seconds_since(begin) < kRepeating;) {
    double flops = 0;
    const double time = seconds([&] {
#pragma omp parallel reduction(+ : flops)
      flops += instructions(kTimes);
    });
    rates.push_back(flops / time * 1e-9);
  }
  const auto middle = rates.begin() + std::ssize(rates) / 2;
  std::nth_element(rates.begin(), middle, rates.end(), std::greater());
  return *middle;
}

}  // namespace

double copy_bandwidth(Device& device, int64_t bytes) {
  Buffer from(device, bytes, "copy rate"), to(device, bytes, "copy rate");
  if (device.place() == Place::cuda) {
    Stream& stream = device.compute();
    const auto copies = [&](int rounds) {
      for (int i = 0; i < rounds; ++i) copy_bytes(*stream.cuda().lane, to.data(), from.data(), bytes);
      stream.finish();
    };
    copies(1);
    const double once = seconds([&] { copies(1); });
    const int rounds = std::clamp(static_cast<int>(kCopying / once), 1, kRoundsAhead);
    return 2 * static_cast<double>(bytes) * rounds / seconds([&] { copies(rounds); }) * 1e-9;
  }
  on_parts(bytes, [&](int64_t begin, size_t size) {  // untouched pages would all map to one page of zeros
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
    flops += count * s.flops();
    time += count * ProductTrial(device, dtype, s).seconds(least_seconds);
  }
  return time > 0 ? flops / time * 1e-9 : 0;
}

double instruction_rate(const Device& device, Dtype dtype) {
  const CpuFacts& cpu = device.cpu();
  const bool bf16 = dtype == Dtype::bf16;
  if (device.place() != Place::cpu || (bf16 && cpu.amx_bf16 && !cpu.amx_tiles)) return 0;
  if (bf16 && cpu.amx_bf16) return rate_of(multiply_and_add_amx);
  const double f32 = rate_of(cpu.avx512 ? multiply_and_add_avx512 : cpu.avx2 ? multiply_and_add_avx2 : multiply_and_add_plain);
  return bf16 && cpu.avx512_bf16 ? std::max(f32, rate_of(multiply_and_add_bf16)) : f32;
}

SteadyRate steady_product_rate(Device& device, Dtype dtype, const std::vector<ProductShape>& shapes) {
  double flops = 0, best = 0, third = 0;
  for (const ProductShape& s : shapes) {
    const double count = static_cast<double>(s.count);
    const std::vector<double> windows = ProductTrial(device, dtype, s).windows();
    flops += count * s.flops(), best += count * windows[0], third += count * windows[2];
  }
  if (best == 0) return {};
  return {.best = flops / best * 1e-9, .spread = 1 - best / third};
}

}  // namespace trireme
