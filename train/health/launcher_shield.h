// LauncherShield: lets a rank finish its save although mpirun kills it.
//
// Asked to end by SIGINT (Ctrl-C), SIGTERM or SIGHUP, Open MPI's mpirun sends SIGTERM to the process group of each rank, and
// SIGKILL a second later. Hardly any save is that fast. So the process that mpirun has started only passes on signals and exit
// codes, and the rank is its child, in a process group of its own. When the first is killed, the second finishes its step, saves
// and ends.
#pragma once

namespace trireme {

// Call it first in main(), before any thread starts. Under an mpirun that kills after a second, it returns in the child alone.
// Elsewhere it does nothing: also if odls_base_sigkill_timeout or orte_forward_job_control is set, whose users decide for
// themselves.
void shield_from_launcher();

}  // namespace trireme
