// Forward reads the logits once, backward reads them once more and writes: a block's second pass finds it in the first level cache.
#include "kernels/ops/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// The targets, once each of them is known to be a class or ignored.
const int32_t* checked_targets(const Tensor& targets, int64_t classes) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t n = 0; n < targets.size(); ++n)
    require(target[n] < classes, text("targets[", n, "] is ", target[n], ", there are ", classes, " classes"));
  return target;
}

// log(sum exp(x)) = top + rest, apart so that large logits cost the loss no digits.
struct LogSumExp {
  float top, rest;
};

// Calls f(lane, x[i]) for all i, in kLanes lanes of their own: sums and maxima that do not wait for each other.
constexpr int64_t kLanes = 64, kLogits = 2048;
template <class F>
inline void in_lanes(const float* x, int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t line = 0; line < kLanes; line += 16) __builtin_prefetch(x + i + line + kLogits);
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) f(lane, x[i + lane]);
  }
  for (int64_t lane = 0; i + lane < n; ++lane) f(lane, x[i + lane]);
}

// Block by block: the sum so far is of exp(x - top).
LogSumExp log_sum_exp(const float* x, int64_t n) {
  float top = std::numeric_limits<float>::lowest(), sum = 0;
  for (; n > 0; x += kLogits, n -= kLogits) {
    const int64_t count = std::min(n, kLogits);
    float high[kLanes], part[kLanes] = {};
    std::fill_n(high, kLanes, top);
    in_lanes(x, count, [&](int64_t lane, float value) { high[lane] = value > high[lane] ? value : high[lane]; });
    const float higher = *std::max_element(high, high + kLanes);
    sum *= softmax_exp(top - higher);
    top = higher;
    in_lanes(x, count, [&](int64_t lane, float value) { part[lane] += softmax_exp(value - higher); });
    sum += std::accumulate(part, part + kLanes, 0.0f);
  }
  return {top, std::log(sum)};
}

}  // namespace

void launch(const Cpu&, const CrossEntropyForward& op) {
  const int64_t rows = op.logits.rows(), classes = op.logits.cols();
  const int32_t* targets = checked_targets(op.targets, classes);
#pragma omp parallel for schedule(static) if (rows * classes > 32768)
  for (int64_t n = 0; n < rows; ++n) {
    const float* logits = op.logits.as<float>() + n * classes;
    const auto [top, rest] = log_sum_exp(logits, classes);
    const float lse = top + rest;
    op.lse.as<float>()[n] = lse;
    op.loss.as<float>()[n] = targets[n] < 0 ? 0 : top - logits[targets[n]] + rest + op.z_loss * lse * lse;
  }
}

namespace {

float largest(const float* x, int64_t n) {
  float high[kLanes];
  std::fill_n(high, kLanes, std::numeric_limits<float>::lowest());
  in_lanes(x, n, [&](int64_t lane, float value) { high[lane] = value > high[lane] ? value : high[lane]; });
  return *std::max_element(high, high + kLanes);
}

float sum_exp(const float* x, int64_t n, float top) {
  float part[kLanes] = {};
  in_lanes(x, n, [&](int64_t lane, float value) { part[lane] += softmax_exp(value - top); });
  return std::accumulate(part, part + kLanes, 0.0f);
}

// dlogits = softmax * factor for the first `classes` columns, zeros behind; at the target less `scale`.
template <class T>
void backward_row(const CrossEntropyBackward& op, int64_t n, int64_t classes, int64_t target) {
  const int64_t cols = op.logits.cols();
  const float* logits = op.logits.as<float>() + n * cols;
  T* dlogits = op.dlogits.as<T>() + n * cols;
  const float lse = op.lse.as<float>()[n], factor = op.scale * (1 + 2 * op.z_loss * lse);
  const bool here = 0 <= target && target < classes;
  const float at_target = here ? softmax_exp(logits[target] - lse) * factor - op.scale : 0;  // before dlogits writes over it
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) dlogits[i] = to<T>(softmax_exp(logits[i] - lse) * factor);
  std::fill(dlogits + classes, dlogits + cols, to<T>(0));
  if (here) dlogits[target] = to<T>(at_target);
}

}  // namespace

void launch(const Cpu&, const ShardTop& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols();
  float* top = op.top.as<float>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (int64_t n = 0; n < rows; ++n) {
    const float mine = largest(op.logits.as<float>() + n * cols, op.valid);
    top[n] = op.join ? std::max(top[n], mine) : mine;
  }
}

void launch(const Cpu&, const ShardSums& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols();
  float *sums = op.sums.as<float>(), *at_target = sums + rows;
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
  for (int64_t n = 0; n < rows; ++n) {
    const float* logits = op.logits.as<float>() + n * cols;
    const int64_t target = op.targets.as<int32_t>()[n] - op.first;
    sums[n] = sum_exp(logits, op.valid, op.top.as<float>()[n]);
    at_target[n] = op.targets.as<int32_t>()[n] >= 0 && 0 <= target && target < op.valid ? logits[target] : 0;
  }
}

void launch(const Cpu&, const ShardLoss& op) {
  const int64_t rows = op.top.size();
  const float *top = op.top.as<float>(), *sums = op.sums.as<float>(), *at_target = sums + rows;
  const int32_t* targets = op.targets.as<int32_t>();
  for (int64_t n = 0; n < rows; ++n) {
    const float rest = std::log(sums[n]), lse = top[n] + rest;
    op.lse.as<float>()[n] = lse;
    op.loss.as<float>()[n] = targets[n] < 0 ? 0 : top[n] - at_target[n] + rest + op.z_loss * lse * lse;
  }
}

void launch(const Cpu&, const CrossEntropyBackward& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols(), classes = op.shard ? op.valid : cols;
  const int32_t* targets = op.shard ? op.targets.as<int32_t>() : checked_targets(op.targets, classes);
  with_dtype(op.dlogits.dtype(), [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      if (targets[n] < 0)
        std::fill_n(op.dlogits.as<T>() + n * cols, cols, to<T>(0));
      else
        backward_row<T>(op, n, classes, targets[n] - op.first);
    }
  });
}

}  // namespace trireme
