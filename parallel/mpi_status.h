// What MPI's calls return, for its two hosts: world.cpp and mpi.cpp.
#pragma once

namespace trireme {

// Error with MPI's message unless the call succeeded. MPI's own handler usually ends the program before.
void ok(int mpi_status);

}  // namespace trireme
