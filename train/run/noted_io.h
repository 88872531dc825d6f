// The system's Io for checkpoints, of which the journal hears when something was read or written.
#pragma once

#include "checkpoint/io.h"
#include "parallel/journal.h"

namespace trireme {

Io noted_io(Journal& journal);  // the journal outlives it

}  // namespace trireme
