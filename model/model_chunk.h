// ModelChunk: consecutive layers of the model, of which a pipeline stage holds one or more.
//
// The layers are cut into stages * chunks such chunks; number c stages + s is chunk c of stage s.
// The first begins with the embedding, the last ends with the head. If the layers do not divide
// evenly, chunks differ by one layer, and the last, which has the head, is a smaller one.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct ModelChunk {
  int64_t begin, end;  // layers
  bool first, last;    // of the model's chunks
  int64_t layers() const { return end - begin; }
};

// Chunks of one stage, in its order. Each has a layer: layers >= stages * chunks.
std::vector<ModelChunk> chunks_of_stage(int64_t layers, int64_t stages, int64_t chunks, int64_t stage);

}  // namespace trireme
