// CopySum: sums over the copies of the state, in fewer bits where parallel.compress asks for it. What
// this copy leaves out of a sum is its rest: it is kept and added to the next one.
//
// In codes (bf16, int8), each copy sums a share of the elements and sends the sum as codes again; what
// these leave out is part of its rest. So the rests of all copies together are what was left out. As
// products (powersgd), each copy's matrix M becomes P Q^T: P is an orthonormal basis of the sum of all
// M Q, and the next Q is the sum of all M^T P.
//
// Vectors, positions, a tied table's copy, and weights that all ranks of a tp group hold are summed
// exactly. Ranks that hold the same must not drift apart, and codes depend on their neighbours.
#pragma once

#include <vector>

#include "kernels/memory.h"
#include "model/stage.h"
#include "parallel/mesh.h"

namespace trireme {

class CopySum {
 public:
  // Takes rests from arenas.optimizer; bases, and room for what is sent, from arenas.temporaries. The
  // arguments must outlive this.
  CopySum(const ParallelConfig& config, const Mesh& mesh, const Stage& stage, Arenas& arenas);

  // True if sums leave something out, or have on another number of copies.
  bool compresses() const { return compress_ != Compress::none; }
  // True if this step's sums may leave something out, and not in the steps before parallel.apart_after.
  bool apart() const { return apart_; }
  void set_apart(bool apart) { apart_ = apart; }
  // A unit's part of the gradients = the sum of all copies'. `exactly`: nothing is left out in any step.
  void sum(Stream& stream, size_t unit, bool exactly = false);
  // Keeps what the last sums left out, if the step was an update. Without a gate, in any case.
  void keep(Stream& stream, const Tensor& gate = {});
  // Fills rests with 0, and bases with normal numbers keyed by (seed, weight).
  void initialise(Stream& stream, int64_t seed);

  // True if sums leave out something of this weight.
  bool is_coded(const Parameter& parameter) const;
  // Rest of this copy in a unit's part, [n] bf16; absent if all of it is summed exactly.
  Tensor rest(size_t unit) const { return units_[unit].rest; }
  // The basis of a matrix of this rank, equal in all copies.
  struct Basis {
    const Parameter* parameter;
    Tensor q;  // [columns, rank] f32
  };
  std::vector<Basis> bases() const;

 private:
  struct Matrix {
    const Parameter* parameter;
    int64_t rows, cols;
    int64_t basis;  // its first element in the unit's bases
  };
  struct Range {
    int64_t begin, end;
    bool operator==(const Range&) const = default;
  };
  struct OfUnit {
    Tensor rest, next;             // [n] bf16; absent if all is summed exactly
    Tensor bases, following;       // flat f32, only for powersgd
    std::vector<Matrix> matrices;  // only for powersgd
    std::vector<Range> exact;      // elements that are summed exactly
    int64_t narrow = 0, sent = 0;  // elements of the matrices P; these and the exact ones
  };

  void list(OfUnit& of, size_t unit);
  void sum_codes(Stream& stream, const OfUnit& of, const Tensor& x);
  void sum_piece(Stream& stream, const OfUnit& of, const Tensor& x, int64_t begin);
  void sum_products(Stream& stream, const OfUnit& of, const Tensor& x);
  template <class Move>
  void for_each_exact(const OfUnit& of, Move move) const;
  Tensor q_of(const Tensor& bases, const Matrix& matrix) const;

  const Comm& copies_;
  const Stage& stage_;
  const Compress compress_;
  const bool bf16_on_wire_;
  const int64_t rank_;  // columns of the narrow matrices
  bool apart_ = true;
  std::vector<OfUnit> units_;
  Tensor out_, in_;  // codes of a piece
  Tensor sent_;      // flat f32: matrices P of a unit, then its exact elements
};

}  // namespace trireme
