// Stochastic rounding of the step's bf16 weights from their f32 masters, without an update: see
// kernels/rounding.h. Lists of tensors must outlive the ops that use them.
#pragma once

#include <span>

#include "kernels/rounding.h"
#include "kernels/run.h"

namespace trireme {

struct RoundedPart {
  Tensor weight;  // out  [n] bf16
  Tensor master;  // in   [n] f32
  WholeTensor whole{};
};

// weight = master rounded, with the bits that an update at step t = `step` leaves.
struct RoundWeights {
  static constexpr auto name = "round_weights";
  static constexpr int64_t kRow = 20;
  std::span<const RoundedPart> parts;
  Tensor table{};  // in   [parts, kRow] i32, from RoundWeightsTable; omit it on the CPU
  int64_t step;
  void visit(auto& t) const {
    t.in(table);
    for (const RoundedPart& part : parts) t.out(part.weight), t.in(part.master);
  }
  void check() const {
    for (const RoundedPart& part : parts) {
      expect(part.master, "master", Dtype::f32, {part.master.size()});
      expect(part.weight, "weight", Dtype::bf16, {part.master.size()});
      if (table || part.weight.place() == Place::cuda)
        expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), kRow});
    }
  }
};
void launch(const Cpu&, const RoundWeights&);
void launch(const Cuda&, const RoundWeights&);

// Writes the addresses of the parts to memory on CUDA; the host waits. Does nothing elsewhere.
struct RoundWeightsTable {
  static constexpr auto name = "round_weights_table";
  Tensor table;                        // out  [parts, RoundWeights::kRow] i32
  std::span<const RoundedPart> parts;  // contents are not read
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::i32, {static_cast<int64_t>(parts.size()), RoundWeights::kRow}); }
};
void launch(const Cpu&, const RoundWeightsTable&);
void launch(const Cuda&, const RoundWeightsTable&);

}  // namespace trireme
