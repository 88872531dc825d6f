// Squared norm of any number of tensors at once. A GPU finds them in a table in its memory, written
// once by a ...Table op. Lists of tensors must outlive the ops that use them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/gate.h"
#include "kernels/run.h"

namespace trireme {

// The sum of a tensor's squares, block by block, as SquaredNorm has it: what writes the tensor can add each block while the cache
// holds it. Only of tensors on the CPU.
class BlockSquares {
 public:
  explicit BlockSquares(const Tensor& x);

  const float* begin() const { return x_; }
  int64_t size() const { return n_; }
  int64_t block() const { return block_; }  // elements of each block, except for a shorter last one
  // Adds the block that begins at element `first`. Different blocks may be added at the same time.
  void add(int64_t first);
  // Ends the blocks of a step: all have been added.
  void complete() { complete_ = true; }
  // Returns the sum if it is complete, and forgets it.
  std::optional<double> take();

 private:
  const float* x_;
  int64_t n_, block_;
  std::vector<double> sums_;
  bool complete_ = false;
};

// total = sum(x^2) over all tensors as a SquaredSum, each in double, in a fixed order for any number of
// threads.
struct SquaredNorm {
  static constexpr auto name = "squared_norm";
  static constexpr int64_t kRow = 6;
  Tensor total;                     // out  [SquaredSum::kSize] f32
  std::span<const Tensor> xs;       // in   any shapes, f32
  Tensor table{};                   // in   [tensors, kRow] i32, from SquaredNormTable; omit it on the CPU
  std::span<BlockSquares> known{};  // sums of some or all of xs on the CPU, one for each; taken
  void visit(auto& t) const {
    t.out(total), t.in(table);
    for (const Tensor& x : xs) t.in(x);
  }
  void check() const {
    expect(total, "total", Dtype::f32, {SquaredSum::kSize});
    for (const Tensor& x : xs) require(x.dtype() == Dtype::f32, text("x is ", x));
    require(known.empty() || known.size() == xs.size(), text("sums of ", known.size(), " of ", xs.size(), " tensors"));
    if (table || total.place() == Place::cuda) expect(table, "table", Dtype::i32, {static_cast<int64_t>(xs.size()), kRow});
  }
};
void launch(const Cpu&, const SquaredNorm&);
void launch(const Cuda&, const SquaredNorm&);

// Writes the addresses of the tensors to memory on CUDA; the host waits. Does nothing elsewhere.
struct SquaredNormTable {
  static constexpr auto name = "squared_norm_table";
  Tensor table;                // out  [tensors, SquaredNorm::kRow] i32
  std::span<const Tensor> xs;  // contents are not read
  void visit(auto& t) const { t.out(table); }
  void check() const { expect(table, "table", Dtype::i32, {static_cast<int64_t>(xs.size()), SquaredNorm::kRow}); }
};
void launch(const Cpu&, const SquaredNormTable&);
void launch(const Cuda&, const SquaredNormTable&);

}  // namespace trireme
