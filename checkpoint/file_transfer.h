// A file sent from one node to another, as long as its receiver knows it to be: both ends move so many bytes, whatever happens to
// either's disk.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/io.h"
#include "parallel/nodes.h"

namespace trireme {

// DamagedCheckpoint, when all bytes were sent, for a file that cannot be read; what arrives is to be checked there.
void send_file(const Io& io, const Nodes& nodes, int64_t to, const std::string& path, int64_t bytes);
// CheckpointError, when all bytes have come, where they cannot be written: nothing of them stays. As a file of another name until
// it is complete.
void receive_file(const Io& io, const Nodes& nodes, int64_t from, const std::string& path, int64_t bytes);

}  // namespace trireme
