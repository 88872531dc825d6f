// AdamW in one pass over any number of tensors (Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019). A GPU finds them in a table in its memory, written once by AdamWTable.
// Lists of tensors must outlive the ops that use them.
#pragma once

#include <array>
#include <cmath>
#include <span>

#include "kernels/gate.h"
#include "kernels/rounding.h"
#include "kernels/run.h"

namespace trireme {

// Values that change from step to step, in memory, so that AdamW's launch is the same each time.
struct AdamWSchedule {
  static constexpr auto name = "adamw_schedule";
  static constexpr int64_t kSize = 3;
  Tensor schedule;  // out  [kSize] f32: lr, 1 / (1 - beta1^t), 1 / (1 - beta2^t)
  float lr, beta1, beta2;
  int64_t step;  // t, counted from 1
  void visit(auto& t) const { t.out(schedule); }
  void check() const {
    expect(schedule, "schedule", Dtype::f32, {kSize});
    require(step >= 1, text("adamw at step ", step));
  }
  std::array<float, kSize> values() const {
    const auto correction = [&](float beta) {
      return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
    };
    return {lr, correction(beta1), correction(beta2)};
  }
};
void launch(const Cpu&, const AdamWSchedule&);
void launch(const Cuda&, const AdamWSchedule&);

// A tensor with its AdamW state.
struct AdamWPart {
  Tensor weight{};            // out  [n] bf16, optional
  Tensor master, m, v, grad;  // add  [n] f32 each
  float decay;
  bool clears = true;   // otherwise grad is left as it is; on the CPU only
  WholeTensor whole{};  // place in the whole tensor, for stochastic rounding
};

//   g = grad * scale;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   master -= lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * master)
//   weight = master rounded;   grad = 0 if it is to be cleared
// Without `weight`, the master itself is the step's weight (f32). If the gate does not pass,
// grad is cleared all the same. Stochastically rounded weights are drawn again even then: they
// follow from the masters and t.
struct AdamW {
  static constexpr auto name = "adamw";
  static constexpr int64_t kRow = 26;
  std::span<const AdamWPart> parts;
  Tensor table{};   // in   [parts, kRow] i32, from AdamWTable; omit it on the CPU
  Tensor gate;      // in   [Gate::kSize] f32
  Tensor schedule;  // in   [AdamWSchedule::kSize] f32
  float beta1, beta2, eps;
  Rounding rounding = Rounding::nearest;
  void visit(auto& t) const {
    t.in(table, gate, schedule);
    for (const AdamWPart& part : parts) {
      t.out(part.weight), t.add(part.master, part.m, part.v);
      part.clears ? t.add(part.grad) : t.in(part.grad);
    }
  }
  void check() const {
    for (const auto& [weight, master, m, v, grad, decay, clears, whole] : parts) {
      const int64_t n = master.size();
      expect(master, "master", Dtype::f32, {n});
      expect(m, "m", Dtype::f32, {n});
      expect(v, "v", Dtype::f32, {n});
      expect(grad, "grad", Dtype::f32, {n});
      require(clears || grad.place() != Place::cuda, text("adamw on a GPU that does not clear ", grad));
      if (weight) expect(weight, "weight", Dtype::bf16, {n});
    }
    expect(gate, "gate", Dtype::f32, {Gate::kSize});
    expect(schedule, "schedule", Dtype::f32, {AdamWSchedule::kSize});
    if (table || schedule.place() == Place::cuda) expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), kRow});
  }
};
void launch(const Cpu&, const AdamW&);
void launch(const Cuda&, const AdamW&);

// Writes the addresses of the parts to memory on CUDA; the host waits. Does nothing elsewhere.
struct AdamWTable {
  static constexpr auto name = "adamw_table";
  Tensor table;                      // out  [parts, AdamW::kRow] i32
  std::span<const AdamWPart> parts;  // contents are not read
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), AdamW::kRow}); }
};
void launch(const Cpu&, const AdamWTable&);
void launch(const Cuda&, const AdamWTable&);

}  // namespace trireme
