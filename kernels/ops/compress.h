// Sums over ranks in fewer bits than f32. What the codes of a tensor leave out is its rest: it is
// added to the next one, so that nothing is lost for good (error feedback: Seide et al., "1-bit
// stochastic gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019).
//
// Codes are i32 words, a row for each block of 256 elements. int8 has a scale of each block, its
// largest magnitude / 127 (Dettmers et al., "8-bit optimizers via block-wise quantization", 2022), in
// its first word. A block with an element that is not finite reads as NaN.
#pragma once

#include "kernels/gate.h"
#include "kernels/int8_scale.h"
#include "kernels/run.h"

namespace trireme {

struct Codes {
  static constexpr int64_t kBlock = 256;                                // elements
  static constexpr int64_t kInt8 = 1 + kBlock / 4, kBf16 = kBlock / 2;  // words of a block
  static constexpr int64_t blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }
};

// For check(): codes of n elements, or more.
inline void expect_codes(const Tensor& codes, int64_t rows) {
  expect(codes, "codes", Dtype::i32, {rows, codes.cols()});
  require(codes.cols() == Codes::kInt8 || codes.cols() == Codes::kBf16, text("codes in blocks of ", codes.cols(), " words"));
}

// codes = x + rest, rounded to the nearest;   next = what they leave out of it.
struct Encode {
  static constexpr auto name = "encode";
  Tensor codes;   // out  [blocks, words] i32
  Tensor x;       // in   [n] f32
  Tensor rest{};  // in   [n] bf16, optional
  Tensor next;    // out  [n] bf16; not `rest`
  void visit(auto& t) const { t.out(codes, next), t.in(x, rest); }
  void check() const {
    expect(x, "x", Dtype::f32, {x.size()});
    if (rest) expect(rest, "rest", Dtype::bf16, {x.size()});
    expect(next, "next", Dtype::bf16, {x.size()});
    expect_codes(codes, Codes::blocks(x.size()));
  }
};
void launch(const Cpu&, const Encode&);
void launch(const Cuda&, const Encode&);

// y = what codes say.
struct Decode {
  static constexpr auto name = "decode";
  Tensor y;      // out  [n] f32
  Tensor codes;  // in   [blocks, words] i32
  void visit(auto& t) const { t.out(y), t.in(codes); }
  void check() const {
    expect(y, "y", Dtype::f32, {y.size()});
    expect_codes(codes, Codes::blocks(y.size()));
  }
};
void launch(const Cpu&, const Decode&);
void launch(const Cuda&, const Decode&);

// y += rest + what the codes of the other ranks say, in the order of the ranks: y and rest are rank
// `rank`'s, whose codes are not read.
struct SumCodes {
  static constexpr auto name = "sum_codes";
  Tensor y;        // add  [n] f32
  Tensor rest;     // in   [n] bf16
  Tensor codes{};  // in   [ranks blocks, words] i32, each rank's after the other, of y.size() elements or more; absent for one
  int64_t rank = 0, ranks = 1;
  void visit(auto& t) const { t.add(y), t.in(rest, codes); }
  int64_t blocks() const { return codes ? codes.dim(0) / ranks : 0; }  // of each rank
  void check() const {
    expect(y, "y", Dtype::f32, {y.size()});
    expect(rest, "rest", Dtype::bf16, {y.size()});
    require(0 <= rank && rank < ranks && (codes || ranks == 1), text("rank ", rank, " of ", ranks));
    if (!codes) return;
    expect_codes(codes, ranks * blocks());
    require(blocks() >= Codes::blocks(y.size()), text(codes, " of ", ranks, " ranks for ", y));
  }
};
void launch(const Cpu&, const SumCodes&);
void launch(const Cuda&, const SumCodes&);

// kept = next if the gate passes: a step that is skipped leaves kept as it was.
struct KeepIfPassed {
  static constexpr auto name = "keep_if_passed";
  Tensor kept;  // add  any shape, f32 or bf16
  Tensor next;  // in   the same
  Tensor gate;  // in   [Gate::kSize] f32
  void visit(auto& t) const { t.add(kept), t.in(next, gate); }
  void check() const {
    expect_float(kept, "kept");
    require(next.same_shape(kept) && next.dtype() == kept.dtype(), text(next, " to be kept as ", kept));
    expect(gate, "gate", Dtype::f32, {Gate::kSize});
  }
};
void launch(const Cpu&, const KeepIfPassed&);
void launch(const Cuda&, const KeepIfPassed&);

}  // namespace trireme
