// MPI calls and helpers for the files of this room that use MPI: world.cpp, nodes.cpp,
// mpi_comm.cpp, mpi_messages.cpp, mpi_sums.cpp, host_collectives.cpp, nccl.cpp.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "parallel/comm.h"

namespace trireme {

// Throws Error with MPI's message unless the call succeeded.
void ok(int mpi_status);

MPI_Comm handle(const Comm& comm);  // Error for an imagined group
int count_of(int64_t bytes);        // as MPI's int; Error above 1 GiB

// Waits for all requests. If one fails, the watchdogs have half a minute to name the rank that is
// out of step before the Error.
// MPI's own wait keeps a core busy that other ranks or compute threads may need: this one yields
// and soon sleeps.
void wait_all(std::vector<MPI_Request>& requests);

// Transfers of a text between two ranks, with its length first.
void send_words(const Comm& comm, int to, const std::string& words);
std::string receive_words(const Comm& comm, int from);

constexpr int kTag = 1;  // tag of messages within collectives; pipelines use larger ones

}  // namespace trireme
