// Sums over rows with the same bits for any number of threads. A fixed number of chunks of rows are
// summed separately, then added in order.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/device.h"

namespace trireme {

// Adds to each of `sums` ([C] f32). Calls f(begin, end, lines) for chunks of rows: lines[i * C + c]
// begins at zero, and its final value is added to column c of sums[i].
template <class F>
void add_column_sums(const Cpu& cpu, int64_t rows, std::initializer_list<Tensor> sums, const F& f) {
  const int64_t cols = sums.begin()->size(), width = static_cast<int64_t>(sums.size()) * cols;
  const int64_t chunks = std::min<int64_t>(64, (rows + 15) / 16);
  float* lines = reinterpret_cast<float*>(cpu.workspace->reserve(chunks * width * 4));
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (int64_t i = 0; i < chunks; ++i) {
    std::fill_n(lines + i * width, width, 0.0f);
    f(rows * i / chunks, rows * (i + 1) / chunks, lines + i * width);
  }
  for_columns(chunks, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = 1; i < chunks; ++i)
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) lines[c] += lines[i * width + c];
  });
  if (chunks == 0) return;
  for (const Tensor& sum : sums) {
    float* to = sum.as<float>();
    for (int64_t c = 0; c < cols; ++c) to[c] += lines[c];
    lines += cols;
  }
}

}  // namespace trireme
