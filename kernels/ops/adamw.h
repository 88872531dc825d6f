// AdamW in one pass (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), and the gradient norm it clips by: each
// of any number of tensors at once. Where they lie, a GPU reads from a table in its memory, which a ...Table op writes once. Lists
// of tensors outlive what was started with them.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/rounding.h"
#include "kernels/run.h"

namespace trireme {

// total = sum(x^2) over all tensors, each in double, in one fixed order whatever the number of threads.
struct SquaredNorm {
  static constexpr auto name = "squared_norm";
  static constexpr int64_t kRow = 6;
  Tensor total;                // out  [1] f32
  std::span<const Tensor> xs;  // in   any shapes, f32
  Tensor table{};              // in   [tensors, kRow] i32, of SquaredNormTable; left out on the CPU
  void visit(auto& t) const {
    t.out(total), t.in(table);
    for (const Tensor& x : xs) t.in(x);
  }
  void check() const {
    expect(total, "total", Dtype::f32, {1});
    for (const Tensor& x : xs) require(x.dtype() == Dtype::f32, text("x is ", x));
    if (table || total.place() == Place::cuda) expect(table, "table", Dtype::i32, {static_cast<int64_t>(xs.size()), kRow});
  }
};
void launch(const Cpu&, const SquaredNorm&);
void launch(const Cuda&, const SquaredNorm&);

// On CUDA, where the tensors lie; the host waits. Elsewhere nothing.
struct SquaredNormTable {
  static constexpr auto name = "squared_norm_table";
  Tensor table;                // out  [tensors, SquaredNorm::kRow] i32
  std::span<const Tensor> xs;  // not looked into
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::i32, {static_cast<int64_t>(xs.size()), SquaredNorm::kRow}); }
};
void launch(const Cpu&, const SquaredNormTable&);
void launch(const Cuda&, const SquaredNormTable&);

// What a step may have at most and still be an update. Without a loss (0) the norm alone decides.
struct StepLimits {
  static constexpr float kLargest = std::numeric_limits<float>::max();
  float squared_norm = kLargest, loss = kLargest;
  // Neither above its limit, infinite or no number. Negative limits refuse every step.
  constexpr bool pass(float norm2, float mean_loss) const { return norm2 <= squared_norm && mean_loss <= loss; }
};

// What changes from step to step, where AdamW reads it: so its launch is the same each time.
struct AdamWSchedule {
  static constexpr auto name = "adamw_schedule";
  static constexpr int64_t kSize = 7;
  static constexpr int kStepBits = 24;  // that an f32 holds
  Tensor schedule;  // out  [kSize] f32: lr, 1 / (1 - beta1^t), 1 / (1 - beta2^t), t's lower bits, t's upper bits, both limits
  float lr, beta1, beta2;
  int64_t step;  // t, counted from 1
  StepLimits limits{};
  void visit(auto& t) const { t.out(schedule); }
  void check() const {
    expect(schedule, "schedule", Dtype::f32, {kSize});
    require(step >= 1, text("adamw at step ", step));
  }
  std::array<float, kSize> values() const {
    const auto correction = [&](float beta) {
      return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
    };
    const int64_t upper = step >> kStepBits, lower = step - (upper << kStepBits);
    return {
        lr,         correction(beta1), correction(beta2), static_cast<float>(lower), static_cast<float>(upper), limits.squared_norm,
        limits.loss};
  }
  static constexpr StepLimits limits_of(const float* schedule) { return {.squared_norm = schedule[5], .loss = schedule[6]}; }
  static constexpr int64_t step_of(const float* schedule) {
    return static_cast<int64_t>(schedule[3]) + (static_cast<int64_t>(schedule[4]) << kStepBits);
  }
};
void launch(const Cpu&, const AdamWSchedule&);
void launch(const Cuda&, const AdamWSchedule&);

// A tensor with what AdamW keeps of it.
struct AdamWPart {
  Tensor weight{};            // out  [n] bf16, optional
  Tensor master, m, v, grad;  // add  [n] f32 each
  float decay;
  WholeTensor whole{};  // for stochastic rounding
};

//     g = grad * min(1, clip / sqrt(squared_norm));   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//     master -= lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * master);   weight = master rounded;   grad = 0
// Without `weight` the master itself is the step's weight (f32). Nothing changes but grad = 0 where squared_norm or loss do not
// pass the schedule's limits: a NaN never reaches the weights. Stochastically rounded weights are drawn anew even then: they
// follow from the masters and t.
struct AdamW {
  static constexpr auto name = "adamw";
  static constexpr int64_t kRow = 26;
  std::span<const AdamWPart> parts;
  Tensor table{};       // in   [parts, kRow] i32, of AdamWTable; left out on the CPU
  Tensor squared_norm;  // in   [1] f32: of all gradients of the model
  Tensor schedule;      // in   [AdamWSchedule::kSize] f32
  Tensor loss{};        // in   [1] f32, optional: the step's
  float beta1, beta2, eps;
  float clip;  // 0: no clipping
  Rounding rounding = Rounding::nearest;
  void visit(auto& t) const {
    t.in(table, squared_norm, schedule, loss);
    for (const AdamWPart& part : parts) t.out(part.weight), t.add(part.master, part.m, part.v, part.grad);
  }
  void check() const {
    for (const auto& [weight, master, m, v, grad, decay, whole] : parts) {
      const int64_t n = master.size();
      expect(master, "master", Dtype::f32, {n});
      expect(m, "m", Dtype::f32, {n});
      expect(v, "v", Dtype::f32, {n});
      expect(grad, "grad", Dtype::f32, {n});
      if (weight) expect(weight, "weight", Dtype::bf16, {n});
    }
    expect(squared_norm, "squared_norm", Dtype::f32, {1});
    expect(schedule, "schedule", Dtype::f32, {AdamWSchedule::kSize});
    if (loss) expect(loss, "loss", Dtype::f32, {1});
    if (table || schedule.place() == Place::cuda) expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), kRow});
  }
};
void launch(const Cpu&, const AdamW&);
void launch(const Cuda&, const AdamW&);

// On CUDA, where the parts lie; the host waits. Elsewhere nothing.
struct AdamWTable {
  static constexpr auto name = "adamw_table";
  Tensor table;                      // out  [parts, AdamW::kRow] i32
  std::span<const AdamWPart> parts;  // not looked into
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), AdamW::kRow}); }
};
void launch(const Cpu&, const AdamWTable&);
void launch(const Cuda&, const AdamWTable&);

// weight = master rounded stochastically, to the bits that AdamW has left at step t = `step`.
struct RoundWeights {
  static constexpr auto name = "round_weights";
  std::span<const AdamWPart> parts;
  Tensor table{};  // in   [parts, AdamW::kRow] i32, of AdamWTable; left out on the CPU
  int64_t step;
  void visit(auto& t) const {
    t.in(table);
    for (const AdamWPart& part : parts) t.out(part.weight), t.in(part.master);
  }
  void check() const {
    for (const AdamWPart& part : parts) {
      expect(part.master, "master", Dtype::f32, {part.master.size()});
      expect(part.weight, "weight", Dtype::bf16, {part.master.size()});
      if (table || part.weight.place() == Place::cuda)
        expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), AdamW::kRow});
    }
  }
};
void launch(const Cpu&, const RoundWeights&);
void launch(const Cuda&, const RoundWeights&);

}  // namespace trireme
