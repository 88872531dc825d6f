// Products of bf16 matrices of our own: c = op(a) op(b) [+ bias] [+ c]. Operands are packed in
// blocks that stay in a core's caches, in pairs along the sum, as the processor's instructions take
// them.
//
// Every sum is one chain of additions over k. So it has the same bits wherever the element stands,
// however many rows there are, and for any number of threads.
//
// The blocks are those of Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008.
#pragma once

#include "kernels/device.h"
#include "kernels/ops/matmul.h"

namespace trireme {

// An operand as lines of k elements: rows of op(a), or columns of op(b).
struct Lines {
  const Bf16* data;
  int64_t count, k;
  bool along;  // the elements of a line are adjacent; otherwise those of one k are
};

// Packs elements [begin, end) of `width` lines, from line `first` on. Lines beyond the last are zeros, as is the element after an
// odd number.
struct Packing {
  const Lines& lines;
  int64_t first, begin, end;
  std::byte* to;
};

// How a processor sums a tile of c in registers.
struct PackedTile {
  int64_t rows, columns;           // of the tile
  int64_t pair_of_a, pair_of_b;    // bytes of two elements of a packed line
  void (*pack_a)(const Packing&);  // rows lines
  void (*pack_b)(const Packing&);  // columns lines
  // sums [rows, columns] += a b over so many pairs of k.
  void (*multiply)(const std::byte* a, const std::byte* b, int64_t pairs, float* sums);
};

const PackedTile& plain_tile();   // products of f32
const PackedTile& bf16_tile();    // AVX512-BF16
const PackedTile& packed_tile();  // the fastest of this processor

// Without the ops that a product can fuse.
void multiply_packed(const Cpu& cpu, const Matmul& op, const PackedTile& tile);

}  // namespace trireme
