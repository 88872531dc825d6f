// Matrix products of our own: c = op(a) op(b) [+ bias] [+ c]. Operands are packed in blocks that
// stay in a core's caches, as the processor's instructions take them.
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
  const void* data;
  int64_t count, k;
  bool along;  // the elements of a line are adjacent; otherwise those of one k are
};

// Packs elements [begin, end) of `panels` times as many lines as a panel has, from line `first` on; `bytes` from panel to panel.
// Lines beyond the last are zeros, as is the element after an odd number.
struct Packing {
  const Lines& lines;
  int64_t first, panels, begin, end;
  std::byte* to;
  int64_t bytes;
};

// Memory that is used next, to be fetched meanwhile: so many bytes for each pair.
struct Ahead {
  const std::byte* at;
  int64_t bytes;
};

// How a processor sums a tile of c in registers.
struct PackedTile {
  int64_t rows, columns;           // of the tile
  int64_t pair_of_a, pair_of_b;    // bytes of two elements of a packed line
  void (*pack_a)(const Packing&);  // panels of `rows` lines
  void (*pack_b)(const Packing&);  // of `columns` lines
  // sums [rows, columns] += a b over so many pairs of k.
  void (*multiply)(const std::byte* a, const std::byte* b, int64_t pairs, float* sums, Ahead ahead);
};

const PackedTile& plain_tile(Dtype operands);    // f32 or bf16, multiplied as f32
const PackedTile& bf16_tile();                   // bf16, by AVX512-BF16
const PackedTile& fastest_tile(Dtype operands);  // of this processor

// Without the ops that a product can fuse.
void multiply_packed(const Cpu& cpu, const Matmul& op, const PackedTile& tile);

}  // namespace trireme
