// Graceful shutdown: on SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 the run finishes its step, saves, and exits with 75.
#pragma once

#include <string>

namespace trireme {

// Holds back those signals until watch_signals(), so that none is lost or kills before. Call it first in main().
void hold_signals();
// Lets this process outlive its parent as soon as it is asked to stop. Until then the kernel kills it with the parent. Call it on
// the first thread.
void outlive_parent_once_asked();

// Installs the handlers; a later call installs them again if a library has replaced them, and keeps what was received. SIGHUP stays
// ignored if it was, as by nohup. A second SIGINT ends the program at once, as that signal does by default (130 in a shell). With
// `speaks`, the handler first prints a line to stderr.
void watch_signals(bool speaks = true);
// Gives the signals their default action again, in a child that is about to become another program.
void forget_signals();
// True of SIGHUP under nohup.
bool is_ignored(int signal);
// Returns the last signal that requested a stop; 0 if there was none.
int stop_signal();
// Returns a signal's name, as in "SIGINT".
std::string signal_name(int signal);

}  // namespace trireme
