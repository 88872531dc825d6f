// OpenMP's bound threads (OMP_PROC_BIND, OMP_PLACES): the cores of all of them, for the others.
//
// libgomp binds the first thread to one core before main(). Other threads would inherit that core, and
// the program would take it for its only one.
#pragma once

namespace trireme {

// Gives the calling thread all cores of OpenMP's places. Threads of parallel loops keep theirs. Does
// nothing if the user has not asked for bound threads.
void unbind_first_thread();

}  // namespace trireme
