// OpenMP's threads, before any is started: how long they wait in a loop, and which cores they may use.
//
// libgomp spins for milliseconds at the ends of parallel loops by default. On a busy machine, such a
// thread takes the core from the one that it waits for, and a step takes up to a hundred times as long.
//
// libgomp binds threads to cores where OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY say so, without
// regard to other ranks on the same cores. It binds the first thread before main(), and every thread
// that this one starts begins with that core alone. So this program binds none, but keeps to the cores
// of those variables. Launchers bind ranks.
//
// Unless asked for something else, Open MPI's mpirun binds each of one or two ranks to one core, and all
// its threads with it. Such a rank gets the cores that mpirun itself may use. More ranks are bound to
// sockets, which suits them.
//
// libgomp reads its environment before main(), so the program has to start once more with a changed one.
#pragma once

namespace trireme {

// Call first in main(). Restarts this program once, as the same process, with bounded waits unless the
// user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, and without bound threads. Does not restart if neither
// is needed, and goes without if that fails. Afterwards the environment is the user's again, for children.
void settle_openmp(char** argv);

}  // namespace trireme
