#include "kernels/cpu/amx_tile.h"

namespace trireme {

const PackedTile& amx_tile() {
  static constexpr PackedTile tile = amx_tile_on<AmxTiles>();
  return tile;
}

}  // namespace trireme
