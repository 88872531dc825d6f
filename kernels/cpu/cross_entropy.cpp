// Forward reads the logits once. Backward reads them once more and writes: the second pass over a
// block finds it in L1. In place, the backward of a row finds it in L2.
#include "kernels/ops/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/simd.h"

namespace trireme {

namespace {

// The targets, after checking that each is a class or ignored.
const int32_t* checked_targets(const Tensor& targets, int64_t classes) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t n = 0; n < targets.size(); ++n)
    require(target[n] < classes, text("targets[", n, "] is ", target[n], ", there are ", classes, " classes"));
  return target;
}

// log(sum exp(x)) = top + rest, kept apart so that large logits do not cost the loss precision.
struct LogSumExp {
  float top, rest;
};

// Calls f(lane, x[i]) for all i, in kLanes independent lanes: sums and maxima do not wait for each
// other.
constexpr int64_t kLanes = 64, kLogits = 2048;
template <class T, class F>
inline void in_lanes(const T* x, int64_t n, const F& f) {
  constexpr int64_t kLine = 64 / sizeof(T);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t line = 0; line < kLanes; line += kLine) __builtin_prefetch(x + i + line + kLogits);
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) f(lane, to_float(x[i + lane]));
  }
  for (int64_t lane = 0; i + lane < n; ++lane) f(lane, to_float(x[i + lane]));
}

float largest_of(const float (&lane)[kLanes]) {
  float high = lane[0];
#pragma omp simd reduction(max : high)
  for (int64_t i = 0; i < kLanes; ++i) high = lane[i] > high ? lane[i] : high;
  return high;
}

float sum_of(const float (&lane)[kLanes]) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < kLanes; ++i) sum += lane[i];
  return sum;
}

// Block by block: the running sum is of exp(x - top).
template <class T>
LogSumExp log_sum_exp(const T* x, int64_t n) {
  float top = std::numeric_limits<float>::lowest(), sum = 0;
  for (; n > 0; x += kLogits, n -= kLogits) {
    const int64_t count = std::min(n, kLogits);
    float high[kLanes], part[kLanes] = {};
    std::fill_n(high, kLanes, top);
    in_lanes(x, count, [&](int64_t lane, float value) { high[lane] = value > high[lane] ? value : high[lane]; });
    const float higher = largest_of(high);
    sum *= softmax_exp(top - higher);
    top = higher;
    in_lanes(x, count, [&](int64_t lane, float value) { part[lane] += softmax_exp(value - higher); });
    sum += sum_of(part);
  }
  return {top, std::log(sum)};
}

struct Loss {
  float loss, lse;
};
template <class T>
Loss loss_of_row(const T* logits, int64_t classes, int32_t target, float z_loss) {
  const auto [top, rest] = log_sum_exp(logits, classes);
  const float lse = top + rest;
  return {target < 0 ? 0 : top - to_float(logits[target]) + rest + z_loss * lse * lse, lse};
}

}  // namespace

void launch(const Cpu&, const CrossEntropyForward& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols(), classes = op.classes();
  const int32_t* targets = checked_targets(op.targets, classes);
  float *loss = op.loss.as<float>(), *lse = op.lse.as<float>();
  with_dtype(op.logits.dtype(), [&](auto zero) {
    const auto* logits = op.logits.as<decltype(zero)>();
#pragma omp parallel for schedule(static) if (rows * classes > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const Loss row = loss_of_row(logits + n * cols, classes, targets[n], op.z_loss);
      loss[n] = row.loss, lse[n] = row.lse;
    }
  });
}

namespace {

template <class T>
float largest(const T* x, int64_t n) {
  float high[kLanes];
  std::fill_n(high, kLanes, std::numeric_limits<float>::lowest());
  in_lanes(x, n, [&](int64_t lane, float value) { high[lane] = value > high[lane] ? value : high[lane]; });
  return largest_of(high);
}

template <class T>
float sum_exp(const T* x, int64_t n, float top) {
  float part[kLanes] = {};
  in_lanes(x, n, [&](int64_t lane, float value) { part[lane] += softmax_exp(value - top); });
  return sum_of(part);
}

struct BackwardRow {
  int64_t cols, classes;
  float z_loss, scale;
};
float scale_of(const auto& op) { return op.scale * (op.factor ? op.factor.template as<float>()[0] : 1.0f); }

// dlogits = softmax * factor for the first `classes` columns, less `scale` at the target; zeros in
// later columns.
template <class D, class T>
void backward_row(D* dlogits, const T* logits, float lse, int64_t target, const BackwardRow& r) {
  const float factor = r.scale * (1 + 2 * r.z_loss * lse);
  const bool here = 0 <= target && target < r.classes;
  // Computed before it is overwritten.
  const float at_target = here ? softmax_exp(to_float(logits[target]) - lse) * factor - r.scale : 0;
#pragma omp simd
  for (int64_t i = 0; i < r.classes; ++i) dlogits[i] = to<D>(softmax_exp(to_float(logits[i]) - lse) * factor);
  std::fill(dlogits + r.classes, dlogits + r.cols, to<D>(0));
  if (here) dlogits[target] = to<D>(at_target);
}

}  // namespace

void launch(const Cpu&, const ShardTop& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols();
  float* top = op.top.as<float>();
  with_dtype(op.logits.dtype(), [&](auto zero) {
    const auto* logits = op.logits.as<decltype(zero)>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const float mine = largest(logits + n * cols, op.valid);
      top[n] = op.join ? std::max(top[n], mine) : mine;
    }
  });
}

void launch(const Cpu&, const ShardSums& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols();
  const int32_t* targets = checked_targets(op.targets, op.classes);
  float *sums = op.sums.as<float>(), *at_target = sums + rows;
  with_dtype(op.logits.dtype(), [&](auto zero) {
    const auto* all = op.logits.as<decltype(zero)>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      const auto* logits = all + n * cols;
      const int64_t target = targets[n] - op.first;
      sums[n] = sum_exp(logits, op.valid, op.top.as<float>()[n]);
      at_target[n] = targets[n] >= 0 && 0 <= target && target < op.valid ? to_float(logits[target]) : 0;
    }
  });
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
  const int64_t rows = op.logits.rows(), cols = op.logits.cols(), classes = op.classes();
  const int32_t* targets = op.shard ? op.targets.as<int32_t>() : checked_targets(op.targets, classes);
  const BackwardRow row{.cols = cols, .classes = classes, .z_loss = op.z_loss, .scale = scale_of(op)};
  const float* lse = op.lse.as<float>();
  const auto backward = [&]<class D, class T>(D* dlogits, const T* logits) {
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      if (targets[n] < 0)
        std::fill_n(dlogits + n * cols, cols, to<D>(0));
      else
        backward_row(dlogits + n * cols, logits + n * cols, lse[n], targets[n] - op.first, row);
    }
  };
  if (op.logits.dtype() == Dtype::bf16) return backward(op.dlogits.as<Bf16>(), op.logits.as<Bf16>());
  with_dtype(op.dlogits.dtype(), [&](auto zero) { backward(op.dlogits.as<decltype(zero)>(), op.logits.as<float>()); });
}

void launch(const Cpu&, const CrossEntropyInPlace& op) {
  const int64_t rows = op.logits.rows(), cols = op.logits.cols(), classes = op.classes();
  const int32_t* targets = checked_targets(op.targets, classes);
  const BackwardRow row{.cols = cols, .classes = classes, .z_loss = op.z_loss, .scale = scale_of(op)};
  float* loss = op.loss.as<float>();
  with_dtype(op.logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* all = op.logits.as<T>();
#pragma omp parallel for schedule(static) if (rows * classes > 32768)
    for (int64_t n = 0; n < rows; ++n) {
      T* logits = all + n * cols;
      if (targets[n] < 0) {
        loss[n] = 0;
        std::fill_n(logits, cols, to<T>(0));
        continue;
      }
      const Loss forward = loss_of_row(logits, classes, targets[n], op.z_loss);
      loss[n] = forward.loss;
      backward_row(logits, logits, forward.lse, targets[n], row);
    }
  });
}

}  // namespace trireme
