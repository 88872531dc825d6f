// What the parts of a model share. A part declares its weights and its saved activations, then forward, then backward mirrored.
//
// Weights and their gradients are the same struct; declare() lists them once, and that listing is walked to count, to place, to
// initialise, to update, to checkpoint. A part holds no state: the Stage owns its weights, gradients and saved activations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "model/config.h"

namespace trireme {

// How a weight starts: normal(0, init_std) for `normal`; `residual` projections write into the stream and start at
// init_std / sqrt(2 layers) (Radford et al., "Language models are unsupervised multitask learners", 2019); `position` at init_std
// / 2.
enum class Init { zero, one, normal, residual, position };

// A named range of the first dim of a fused weight: q, k and v of one product; gate and up of another.
struct WeightPiece {
  std::string name;
  int64_t rows;
};

struct WeightSpec {
  std::string name;            // "layers.3.attention.out"; for a fused weight the part in front of its pieces' names
  std::vector<int64_t> shape;  // 1 or 2 dims; a product's weight is [out, in]
  Init init;
  std::vector<WeightPiece> pieces{};  // empty: one piece, the weight itself

  bool decays() const { return shape.size() > 1; }
  int64_t size() const { return shape.size() == 1 ? shape[0] : shape[0] * shape[1]; }
};

using WeightVisitor = std::function<void(Tensor&, const WeightSpec&)>;

// The named pieces of a weight `t` (or of its gradient, master or moment): (full name, view).
inline std::vector<std::pair<std::string, Tensor>> pieces_of(const WeightSpec& spec, const Tensor& t) {
  if (spec.pieces.empty()) return {{spec.name, t}};
  std::vector<std::pair<std::string, Tensor>> named;
  int64_t row = 0;
  for (const WeightPiece& piece : spec.pieces) {
    named.emplace_back(spec.name + piece.name, t.slice(row, row + piece.rows));
    row += piece.rows;
  }
  require(row == spec.shape[0], text("the pieces of ", spec.name, " cover ", row, " of ", spec.shape[0], " rows"));
  return named;
}

// The sequences of one pass, B rows of T tokens; each tensor is [N] i32, N = B T.
struct Microbatch {
  int64_t rows = 0, context = 0;
  Tensor tokens, positions;
  Tensor targets{};         // for a loss; negative: ignored
  Tensor document_start{};  // [N], see ops/attention.h; absent: one document a row

  int64_t size() const { return rows * context; }
};

// What a part works with during one pass.
struct Pass {
  Stream& stream;
  Arena& temporaries;
  const ModelConfig& config;
  const Microbatch& batch;
  Tensor rope;  // [context, D/2, 2] f32; absent without RoPE
  Dtype dtype;  // of activations

  int64_t size() const { return batch.size(); }
  Tensor temporary(int64_t cols) { return temporaries.take(dtype, {size(), cols}); }
};

// The residual stream between parts: x + delta, added where the next norm reads it. delta is absent before the first block.
struct Residual {
  Tensor x;        // [N, C]
  Tensor delta{};  // [N, C]
};

}  // namespace trireme
