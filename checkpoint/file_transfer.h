// Sends a file from one node to another. Both sides transfer the agreed number of bytes, even if
// either disk fails.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/io.h"
#include "parallel/nodes.h"

namespace trireme {

// Throws DamagedCheckpoint, after all bytes were sent, if the file cannot be read. The receiver
// must verify the contents.
void send_file(const Io& io, const Nodes& nodes, int64_t to, const std::string& path, int64_t bytes);
// Throws CheckpointError, after all bytes have arrived, if they cannot be written; it then leaves
// no file. Until it is complete the file has a temporary name.
void receive_file(const Io& io, const Nodes& nodes, int64_t from, const std::string& path, int64_t bytes);

}  // namespace trireme
