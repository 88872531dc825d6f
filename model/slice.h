// Slice: the layers that a stage of a pipeline holds, as one or more pieces of the model.
//
// The layers are cut into stages * chunks pieces of consecutive layers; piece c stages + s is chunk c of stage s. The first piece
// begins with the embedding, the last one ends with the head. Where the layers do not divide, pieces differ by one, and the last
// piece, which has the head, is not among the larger ones.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct ModelPiece {
  int64_t begin, end;  // layers
  bool first, last;    // of the model's pieces
  int64_t layers() const { return end - begin; }
};

// The pieces of one stage, by chunk. Each has a layer: layers >= stages * chunks.
std::vector<ModelPiece> slice_of(int64_t layers, int64_t stages, int64_t chunks, int64_t stage);

}  // namespace trireme
