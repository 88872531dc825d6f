// OpenMP's waits at the ends of parallel loops: this program bounds how long they spin.
//
// libgomp spins for milliseconds by default. On a busy machine, such a thread takes the core from the
// one that it waits for, and a step takes up to a hundred times as long. libgomp reads its environment
// before main(), so the program has to start once more with a changed one.
#pragma once

namespace trireme {

// Call first in main(). Restarts this program once, as the same process, with bounded waits. Does
// nothing if the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or if the restart fails. The
// variables are removed afterwards, so children inherit the user's environment.
void bound_openmp_waits(char** argv);

}  // namespace trireme
