// MPI, for the files of this room that call it: world.cpp, nodes.cpp, mpi_comm.cpp, mpi_messages.cpp,
// mpi_sums.cpp, host_collectives.cpp, nccl.cpp.
#pragma once

#include <mpi.h>

#include <vector>

#include "parallel/comm.h"

namespace trireme {

// Error with MPI's message unless the call succeeded.
void ok(int mpi_status);

MPI_Comm handle(const Comm& comm);  // Error for an imagined group
int count_of(int64_t bytes);        // as MPI takes it; Error above 1 GiB

// Where a message fails, the watchdogs have half a minute to name who is out of step before the Error.
// MPI's own waiting keeps a core busy, which another rank or our own compute threads may need: this one gives way, and soon sleeps.
void wait_all(std::vector<MPI_Request>& requests);

constexpr int kTag = 1;  // of messages within collectives; those of pipelines have the ones above

}  // namespace trireme
