// The piece table: a text in a rank's file that says where in it each byte of which tensor is. With
// the manifest's tensors it is all that a reader of the file needs; it knows no config and no mesh.
//
//   trireme pieces 1
//   pages COUNT OFFSET DIGEST
//   container DIGEST
//   TENSOR DTYPE SHAPE OFFSET BOX BYTE DIGEST
//
// The last line repeats, a line for each piece in the order of the page table. SHAPE is the tensor's,
// OFFSET and BOX are the piece's, as "3,5". BYTE is where it begins in the file, DIGEST that of its
// pages' digests, 16 hex digits. Empty lines fill the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/manifest.h"

namespace trireme {

inline constexpr int64_t kMostTableBytes = int64_t{64} << 20;

std::string piece_table(const Manifest& manifest, const FileEntry& file);
// Bytes that the table will have at most, whatever offsets and digests its pieces get.
int64_t room_for_table(const Manifest& manifest, const FileEntry& file);

// Fills what `file`, an entry of `manifest`, has from a table. DamagedCheckpoint if the text is invalid,
// its tensors are not those of the manifest, or check_pieces() fails.
void parse_piece_table(std::string_view table, const Manifest& manifest, FileEntry& file);

}  // namespace trireme
