#include "model/model_chunk.h"

#include "base/error.h"

namespace trireme {

std::vector<ModelChunk> chunks_of_stage(int64_t layers, int64_t stages, int64_t chunks, int64_t stage) {
  const int64_t pieces = stages * chunks, least = layers / pieces, larger = layers % pieces;
  require(0 <= stage && stage < stages && least >= 1, text(layers, " layers for stage ", stage, " of ", stages, " x ", chunks));
  // Pieces [pieces - 1 - larger, pieces - 1) have one more layer.
  const auto begin = [&](int64_t piece) {
    return piece * least + (piece < pieces ? std::max<int64_t>(0, piece - (pieces - 1 - larger)) : larger);
  };
  std::vector<ModelChunk> mine;
  for (int64_t piece = stage; piece < pieces; piece += stages)
    mine.push_back({.begin = begin(piece), .end = begin(piece + 1), .first = piece == 0, .last = piece == pieces - 1});
  return mine;
}

}  // namespace trireme
