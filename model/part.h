// Common definitions of the model's parts. A part declares its weights and its saved activations,
// then forward, then backward mirrored.
//
// Weights and their gradients are the same struct. declare() lists them once; that listing is
// walked to count, place, initialise, update and checkpoint them. A part holds no state: the Stage
// owns its weights, gradients and saved activations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "model/config.h"
#include "model/shards.h"

namespace trireme {

// Initial values of a weight. `normal`: normal(0, init_std). `residual`: projections that write
// into the stream, with init_std / sqrt(2 layers) (Radford et al., "Language models are
// unsupervised multitask learners", 2019). `position`: with init_std / 2.
enum class Init { zero, one, normal, residual, position };

// A named range of the first dim of a fused weight: q, k and v of one product; gate and up of
// another. With tensor parallelism it is rows [first, first + rows) of a weight of `all` rows.
struct WeightPiece {
  std::string name;
  int64_t rows;
  int64_t first = 0, all = rows;
  bool copy = false;  // another shard has the same rows and counts them
};

// Weights that every rank of a tensor-parallel group holds: when the ranks' gradients must be
// summed. `rows`: if each rank has its own rows of the stream; `heads`: always.
enum class Shared { no, rows, heads };

struct WeightSpec {
  std::string name;            // "layers.3.attention.out"; for a fused weight the common prefix of its pieces' names
  std::vector<int64_t> shape;  // 1 or 2 dims; a product's weight is [out, in]
  Init init;
  std::vector<WeightPiece> pieces{};    // empty: one piece, the weight itself. Rows after the pieces are padding, always zero
  int64_t first_col = 0, all_cols = 0;  // columns [first_col, first_col + shape[1]) of a weight of all_cols; 0: all columns
  Shared shared = Shared::no;

  bool is_vector() const { return shape.size() == 1; }
  bool decays() const { return !is_vector(); }
  int64_t size() const { return shape.size() == 1 ? shape[0] : shape[0] * shape[1]; }
  std::vector<WeightPiece> all_pieces() const {
    return pieces.empty() ? std::vector<WeightPiece>{{.name = "", .rows = shape[0]}} : pieces;
  }
};

using WeightVisitor = std::function<void(Tensor&, const WeightSpec&)>;

// A part's weights, and their gradients, to which its backward adds.
template <class Weights>
struct Trained {
  const Weights& weights;
  Weights& gradients;
};

// Consecutive rows of a batch.
struct RowRange {
  int64_t begin, end;
  Tensor of(const Tensor& all) const { return all ? all.slice(begin, end) : all; }
};

// Rows that a product works on: forward computes y from x. The first half of backward computes dx from
// dy; the second, at any later time, computes the weights' gradients from dy and x. `Kept` holds
// values that the first half leaves to the second in the same pass.
struct PartForward {
  Tensor x, y;
};
template <class Kept>
struct PartBackwardInput {
  Tensor dy, dx;
  Kept keep{};
};
template <class Kept>
struct PartBackwardWeight {
  Tensor dy, x;
  Kept kept{};
};

// Named pieces of a weight `t` (or of its gradient, master or moment): (full name, view).
inline std::vector<std::pair<std::string, Tensor>> pieces_of(const WeightSpec& spec, const Tensor& t) {
  std::vector<std::pair<std::string, Tensor>> named;
  int64_t row = 0;
  for (const WeightPiece& piece : spec.all_pieces()) {
    named.emplace_back(spec.name + piece.name, t.slice(row, row + piece.rows));
    row += piece.rows;
  }
  return named;
}

// The sequences of one pass: B rows of T tokens. Each tensor is [N] i32, N = B T.
struct Microbatch {
  int64_t rows = 0, context = 0;
  Tensor tokens, positions;
  Tensor targets{};         // needed for a loss; negative: ignored
  Tensor document_start{};  // [N], see ops/attention.h; absent: one document for each row
  // In a training step: number of this microbatch in the replica, and whether the gradients leave
  // the Stage after its backward.
  int64_t number = 0;
  bool last = false, gradients_leave = false;

  int64_t size() const { return rows * context; }
};

// A product's weight in 8 bits, as forward and backward read it; absent without memory for it.
struct RoundedWeight {
  Tensor values{}, transposed{};  // [O, I], [I, O] e4m3
  Tensor scale{};                 // [1] f32
  void take(Arena& arena, const Tensor& w) {
    values = arena.take(Dtype::e4m3, {w.dim(0), w.dim(1)});
    transposed = arena.take(Dtype::e4m3, {w.dim(1), w.dim(0)});
    scale = arena.take(Dtype::f32, {1});
  }
};

// Context of one pass through the parts: config, memory, stream and batch.
struct Pass {
  Stream& stream;
  Arena& temporaries;
  const ModelConfig& config;  // of one shard: see shard_config
  const Microbatch& batch;
  Tensor rope;                  // [context, D/2, 2] f32; absent without RoPE
  Dtype dtype;                  // of activations
  Dtype logits = Dtype::f32;    // of the classifier, for a loss: f32 or dtype
  bool fused_products = false;  // fuse what can be fused into products: see kernels/ops/matmul.h
  bool fused_gelu = false;      // and the activation function in forward
  bool fp8 = false;             // products with weights are 8-bit and fuse nothing: see model/linear.h
  bool new_weights = false;     // the first forward of a step: weights have changed since they were rounded
  bool new_gradients = false;   // the first backward of a step that writes them: see StageShape
  const TensorParallel& tensor = kWhole;
  int64_t vocab = config.vocab;  // of the whole model

  int64_t size() const { return batch.size(); }                // N
  int64_t own() const { return size() / tensor.row_parts(); }  // rows of the stream on this rank
  Tensor temporary(int64_t cols) { return temporaries.take(dtype, {size(), cols}); }
  Tensor own_temporary(int64_t cols) { return temporaries.take(dtype, {own(), cols}); }
};

// The residual stream between parts: x + delta, added by the next norm. delta is absent before the
// first block.
struct Residual {
  Tensor x;        // [own, C]
  Tensor delta{};  // [own, C]
};

}  // namespace trireme
