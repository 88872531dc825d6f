// The classifier's loss on a chunk of logits; the head walks the batch in chunks, so that N x V logits never exist.
//     lse = log(sum exp(logits));   loss = lse - logits[target] + z_loss * lse^2;   0 where target < 0 (ignored)
// z_loss is PaLM's (Chowdhery et al., 2022).
#pragma once

#include "kernels/run.h"

namespace trireme {

struct CrossEntropyForward {
  static constexpr auto name = "cross_entropy";
  Tensor loss, lse;  // out  [N] f32, [N] f32
  Tensor logits;     // in   [N, V] f32
  Tensor targets;    // in   [N] i32, < V; negative: ignored
  float z_loss = 0;
  void visit(auto& t) const { t.out(loss, lse), t.in(logits, targets); }
  void check() const {
    expect(logits, "logits", Dtype::f32, {logits.dim(0), logits.cols()});
    expect(loss, "loss", Dtype::f32, {logits.rows()});
    expect(lse, "lse", Dtype::f32, {logits.rows()});
    expect(targets, "targets", Dtype::i32, {logits.rows()});
  }
};
void launch(const Cpu&, const CrossEntropyForward&);

// dlogits = scale * (softmax(logits) (1 + 2 z_loss lse) - onehot(target)); 0 in ignored rows.
struct CrossEntropyBackward {
  static constexpr auto name = "cross_entropy_backward";
  Tensor dlogits;               // out  [N, V] f32 (then it may be logits) or bf16
  Tensor logits, lse, targets;  // in   [N, V] f32, [N] f32, [N] i32
  float z_loss = 0;
  float scale = 1;  // 1 / (valid targets of the global batch)
  void visit(auto& t) const { t.out(dlogits), t.in(logits, lse, targets); }
  void check() const {
    CrossEntropyForward{.loss = lse, .lse = lse, .logits = logits, .targets = targets}.check();
    expect_float(dlogits, "dlogits");
    expect(dlogits, "dlogits", {logits.rows(), logits.cols()});
  }
};
void launch(const Cpu&, const CrossEntropyBackward&);

}  // namespace trireme
