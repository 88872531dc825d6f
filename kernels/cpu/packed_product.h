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

// Memory that is used next, to be fetched meanwhile.
struct Ahead {
  const std::byte* panel;  // so many bytes for each pair
  int64_t pair;
  const std::byte* c;  // rows of the tile, `step` bytes apart
  int64_t step, bytes, rows;

  // One at a time: all at once would keep the panels of this tile waiting.
  void fetch_row(int64_t row) const {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(c + row * step + at, 1);
  }
};

// A tile of c, or the part of its sums over a range of k.
struct PackedSum {
  const std::byte *a, *b;  // panels
  int64_t step;            // elements from row to row of a, where it is not packed
  int64_t pairs;           // of k
  int64_t rows;            // of c: those beyond may be left out
  float* sums;             // [rows, columns] of the tile
  int64_t sums_step;       // elements from row to row of them
  bool first;              // sums = a b; otherwise sums += a b
  Ahead ahead;
};

// How a processor sums a tile of c in registers.
struct PackedTile {
  int64_t rows, columns;                    // of the tile
  int64_t words;                            // numbers of 4 bytes of a packed line of a, that lie together
  int64_t k;                                // elements of a sum that are added at once, at most
  int64_t pair_of_a, pair_of_b;             // bytes of two elements of a packed line
  void (*pack_a)(const Packing&);           // panels of `rows` lines
  void (*pack_lines_of_a)(const Packing&);  // the same, where the elements of a line are adjacent
  void (*pack_b)(const Packing&);           // panels of `columns` lines
  void (*multiply)(const PackedSum&);
  void (*multiply_lines)(const PackedSum&);  // panels of pack_lines_of_a
  // Rows of a where they lie: so many that a third of a tile divides them, of an even number of elements. nullptr if it cannot.
  void (*multiply_rows)(const PackedSum&) = nullptr;
  int64_t k_of_rows = k;  // as `k`, where many longer rows are read in place: they crowd each other out of L1
};

const PackedTile& plain_tile(Dtype operands);  // f32 or bf16, multiplied as f32
const PackedTile& bf16_tile();                 // bf16, by AVX512-BF16
const PackedTile& amx_tile();                  // bf16, by AMX

// How much is done at once, at most. Results do not depend on it.
struct PackedBlocks {
  int64_t k = 0;             // of a sum in registers, in whole blocks of words; 0: the tile's
  int64_t inside = 4 << 20;  // elements that are packed of the operand with fewer lines, if k is long
  int64_t c = 4 << 20;       // elements whose sums are kept in memory, if k is longer than that
  int64_t columns = 4096;    // of them
};

// Without the ops that a product can fuse. In memory of the caller's, of packed_bytes(), or in the workspace.
int64_t packed_bytes(const Matmul& op, const PackedTile& tile);
void multiply_packed(std::byte* memory, const Matmul& op, const PackedTile& tile);
void multiply_packed(const Cpu& cpu, const Matmul& op, const PackedTile& tile, const PackedBlocks& blocks = {});

}  // namespace trireme
