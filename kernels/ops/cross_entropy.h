// The classifier's loss on a chunk of logits, f32 or bf16. The head walks the batch in chunks, so
// that N x V logits never exist. All sums are f32.
//   lse = log(sum exp(logits));   loss = lse - logits[target] + z_loss * lse^2;   0 if target < 0 (ignored)
// z_loss is PaLM's (Chowdhery et al., 2022).
#pragma once

#include "kernels/run.h"

namespace trireme {

struct CrossEntropyForward {
  static constexpr auto name = "cross_entropy";
  Tensor loss, lse;  // out  [N] f32, [N] f32
  Tensor logits;     // in   [N, V]
  Tensor targets;    // in   [N] i32, < classes; negative: ignored
  float z_loss = 0;
  int64_t valid = 0;  // classes, in the first columns; later ones are padding. 0: all columns
  int64_t classes() const { return valid > 0 ? valid : logits.cols(); }
  void visit(auto& t) const { t.out(loss, lse), t.in(logits, targets); }
  void check() const {
    expect_float(logits, "logits");
    expect(logits, "logits", {logits.dim(0), logits.cols()});
    require(classes() <= logits.cols(), text(classes(), " classes in logits ", logits));
    expect(loss, "loss", Dtype::f32, {logits.rows()});
    expect(lse, "lse", Dtype::f32, {logits.rows()});
    expect(targets, "targets", Dtype::i32, {logits.rows()});
  }
};
void launch(const Cpu&, const CrossEntropyForward&);
void launch(const Cuda&, const CrossEntropyForward&);

// The same in steps, if each shard has some classes: [first, first + valid) in its columns; later
// columns are padding. First top = the largest logit; then sums of exp(logit - top) and the
// target's logit; both combined over the shards; then the loss.
struct ShardTop {
  static constexpr auto name = "shard_top";
  Tensor top;     // out  [N] f32; with `join` the larger of it and its present value
  Tensor logits;  // in   [N, V]
  int64_t valid;
  bool join = false;
  void visit(auto& t) const { join ? t.add(top) : t.out(top), t.in(logits); }
  void check() const {
    expect_float(logits, "logits");
    expect(logits, "logits", {logits.dim(0), logits.cols()});
    expect(top, "top", Dtype::f32, {logits.rows()});
  }
};
void launch(const Cpu&, const ShardTop&);
void launch(const Cuda&, const ShardTop&);

struct ShardSums {
  static constexpr auto name = "shard_sums";
  Tensor sums;                  // out  [2, N] f32: of exp(logits - top); the target's logit, 0 in other shards
  Tensor logits, top, targets;  // in   [N, V], [N] f32, [N] i32, < classes
  int64_t first, valid;
  int64_t classes;  // of all shards
  void visit(auto& t) const { t.out(sums), t.in(logits, top, targets); }
  void check() const {
    ShardTop{.top = top, .logits = logits, .valid = valid}.check();
    expect(sums, "sums", Dtype::f32, {2, logits.rows()});
    expect(targets, "targets", Dtype::i32, {logits.rows()});
  }
};
void launch(const Cpu&, const ShardSums&);
void launch(const Cuda&, const ShardSums&);

struct ShardLoss {
  static constexpr auto name = "shard_loss";
  Tensor loss, lse;           // out  [N] f32, [N] f32
  Tensor top, sums, targets;  // in   [N] f32, [2, N] f32, [N] i32
  float z_loss = 0;
  void visit(auto& t) const { t.out(loss, lse), t.in(top, sums, targets); }
  void check() const {
    expect(top, "top", Dtype::f32, {targets.dim(0)});
    expect(sums, "sums", Dtype::f32, {2, top.size()});
    expect(targets, "targets", Dtype::i32, {top.size()});
    expect(loss, "loss", Dtype::f32, {top.size()});
    expect(lse, "lse", Dtype::f32, {top.size()});
  }
};
void launch(const Cpu&, const ShardLoss&);
void launch(const Cuda&, const ShardLoss&);

// dlogits = scale * (softmax(logits) (1 + 2 z_loss lse) - onehot(target)); 0 in ignored rows.
struct CrossEntropyBackward {
  static constexpr auto name = "cross_entropy_backward";
  Tensor dlogits;               // out  [N, V] of the logits' dtype (then it may be logits) or bf16
  Tensor logits, lse, targets;  // in   [N, V], [N] f32, [N] i32
  float z_loss = 0;
  float scale = 1;
  Tensor factor{};  // in  [1] f32, times scale: 1 / (valid targets of the global batch); absent: 1
  bool shard = false;
  int64_t first = 0, valid = 0;  // range of a shard, whose targets ShardSums checks; without one, `valid` as in CrossEntropyForward
  int64_t classes() const { return shard || valid > 0 ? valid : logits.cols(); }
  void visit(auto& t) const { t.out(dlogits), t.in(logits, lse, targets, factor); }
  void check() const {
    if (factor) expect(factor, "factor", Dtype::f32, {1});
    CrossEntropyForward{.loss = lse, .lse = lse, .logits = logits, .targets = targets}.check();
    require(dlogits.dtype() == logits.dtype() || dlogits.dtype() == Dtype::bf16, text("dlogits is ", dlogits, ", logits ", logits));
    expect(dlogits, "dlogits", {logits.rows(), logits.cols()});
  }
};
void launch(const Cpu&, const CrossEntropyBackward&);
void launch(const Cuda&, const CrossEntropyBackward&);

// Forward and backward at once, of all classes, with the same bits: dlogits replaces the logits.
struct CrossEntropyInPlace {
  static constexpr auto name = "cross_entropy_in_place";
  Tensor loss;     // out  [N] f32
  Tensor logits;   // updated: dlogits [N, V]
  Tensor targets;  // in   [N] i32
  float z_loss = 0;
  float scale = 1;
  Tensor factor{};    // in  as in CrossEntropyBackward
  int64_t valid = 0;  // as in CrossEntropyForward; dlogits of padding are 0
  int64_t classes() const { return valid > 0 ? valid : logits.cols(); }
  void visit(auto& t) const { t.out(loss), t.add(logits), t.in(targets, factor); }
  void check() const {
    if (factor) expect(factor, "factor", Dtype::f32, {1});
    CrossEntropyForward{.loss = loss, .lse = loss, .logits = logits, .targets = targets, .valid = valid}.check();
  }
};
void launch(const Cpu&, const CrossEntropyInPlace&);
void launch(const Cuda&, const CrossEntropyInPlace&);

}  // namespace trireme
